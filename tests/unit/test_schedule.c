/* All stages' action lists played against one another: for every number of stages, micro-batches and stage, no
 * deadlock when a send ends only with its receive, each micro-batch once each way and in order, slots never reused
 * early, in flight never more than stages − stage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "train/schedule.h"

enum { STAGES = 12, MICROS = 40 };

/* One stage while its list is played. An exchange's transfers are open from when it is reached; it is passed when all
 * of them are matched by the neighbours' open exchanges. */
struct player {
	struct schedule s;
	int at;
	int forwards, backwards;
	int got_activation, got_gradient; /* received so far, in order */
	int busy[STAGES];                 /* micro-batch in each slot, −1: free */
};

static const struct action *current(const struct player *p)
{
	return p->at < p->s.count ? &p->s.actions[p->at] : NULL;
}

static bool in_exchange(const struct player *p, const struct action **a)
{
	*a = current(p);
	return *a && (*a)->kind == ACTION_EXCHANGE;
}

/* Transfers of the current exchange that are still open: a bit each. */
enum { SEND_A = 1, RECV_A = 2, SEND_G = 4, RECV_G = 8 };

static int wanted(const struct action *a)
{
	return (a->send_activation >= 0 ? SEND_A : 0) | (a->receive_activation >= 0 ? RECV_A : 0) |
	       (a->send_gradient >= 0 ? SEND_G : 0) | (a->receive_gradient >= 0 ? RECV_G : 0);
}

static void compute(struct player *p, bool forward_only)
{
	const struct action *a;
	while ((a = current(p)) && a->kind != ACTION_EXCHANGE) {
		assert_in_range(a->slot, 0, p->s.slots - 1);
		if (a->kind == ACTION_FORWARD) {
			assert_int_equal(a->micro, p->forwards);
			p->forwards++;
			if (!forward_only) {
				assert_int_equal(p->busy[a->slot], -1);
				p->busy[a->slot] = a->micro;
			}
		} else {
			assert_int_equal(a->micro, p->backwards);
			assert_int_equal(p->busy[a->slot], a->micro);
			p->busy[a->slot] = -1;
			p->backwards++;
		}
		p->at++;
	}
}

static void play(int stages, int micros, bool forward_only)
{
	static struct player players[STAGES];
	int open[STAGES];
	memset(open, -1, sizeof open);
	for (int i = 0; i < stages; i++) {
		struct player *p = &players[i];
		*p = (struct player){0};
		memset(p->busy, -1, sizeof p->busy);
		if (forward_only)
			schedule_forward(&p->s, i, stages, micros);
		else
			schedule_1f1b(&p->s, i, stages, micros);
		assert_true(p->s.slots <= stages - i);
		assert_true(forward_only || p->s.slots == (stages - i < micros ? stages - i : micros));
	}
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < stages; i++) {
			const struct action *a, *b;
			int before = players[i].at;
			compute(&players[i], forward_only);
			if (in_exchange(&players[i], &a) && open[i] < 0)
				open[i] = wanted(a);
			if (i + 1 < stages && in_exchange(&players[i], &a) && in_exchange(&players[i + 1], &b) &&
			    open[i + 1] >= 0) {
				if (open[i] & SEND_A && open[i + 1] & RECV_A) {
					assert_int_equal(a->send_activation, b->receive_activation);
					assert_int_equal(a->send_activation, players[i].forwards - 1);
					assert_int_equal(b->receive_activation, players[i + 1].forwards);
					open[i] &= ~SEND_A;
					open[i + 1] &= ~RECV_A;
					moved = true;
				}
				if (open[i] & RECV_G && open[i + 1] & SEND_G) {
					assert_int_equal(a->receive_gradient, b->send_gradient);
					assert_int_equal(a->receive_gradient, players[i].backwards);
					assert_int_equal(b->send_gradient, players[i + 1].backwards - 1);
					open[i] &= ~RECV_G;
					open[i + 1] &= ~SEND_G;
					moved = true;
				}
			}
			if (in_exchange(&players[i], &a) && open[i] == 0) {
				open[i] = -1;
				players[i].at++;
			}
			moved |= players[i].at != before;
		}
	}
	for (int i = 0; i < stages; i++) {
		assert_int_equal(players[i].at, players[i].s.count);
		assert_int_equal(players[i].forwards, micros);
		assert_int_equal(players[i].backwards, forward_only ? 0 : micros);
		schedule_finish(&players[i].s);
	}
}

static void test_1f1b(void **state)
{
	(void)state;
	for (int stages = 1; stages <= STAGES; stages++)
		for (int micros = 1; micros <= MICROS; micros++)
			play(stages, micros, false);
}

static void test_forward(void **state)
{
	(void)state;
	for (int stages = 1; stages <= STAGES; stages++)
		for (int micros = 1; micros <= MICROS; micros++)
			play(stages, micros, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_1f1b), cmocka_unit_test(test_forward)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
