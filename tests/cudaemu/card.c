#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cpu/cpu.h"
#include "emu.h"
#include "kernels.h"

struct card {
	struct kernel_place place;
	size_t poisoned; /* bytes of the workspace that the shapes of the tests reach */
	bool backwards;
};

#define CARD_OP(name)                                                         \
	static void card_##name(struct device *dev, const struct op_##name *a) \
	{                                                                     \
		struct card *card = dev->impl;                                \
		memset(card->place.workspace, 0xff, card->poisoned);          \
		emu_set_backwards(card->backwards);                           \
		kernel_##name(&card->place, a);                               \
		emu_set_backwards(false);                                     \
	}
KERNELS(CARD_OP)
#undef CARD_OP

static void card_gemm(struct device *dev, const struct op_gemm *a)
{
	ops_plain.gemm(dev, a);
}

#define CARD_ENTRY(name) .name = card_##name,
static const struct ops ops_card = {.gemm = card_gemm, KERNELS(CARD_ENTRY)};
#undef CARD_ENTRY

static void *card_take(struct device *dev, size_t bytes)
{
	void *p = emu_take(bytes);
	if (p)
		memset(p, 0, bytes);
	return p;
}

static void card_give_back(struct device *dev, void *memory)
{
	emu_give_back(memory);
}

static void card_close(struct device *dev)
{
	struct card *card = dev->impl;
	emu_give_back(card->place.workspace);
	emu_give_back(dev->scalars);
	free(card);
}

static bool card_open(struct device *dev, const struct dev_options *options, struct error *e)
{
	struct card *card = calloc(1, sizeof *card);
	if (!card)
		return error_set(e, CODE_MACHINE, "out of memory");
	dev->impl = card;
	dev->ops = &ops_card;
	dev->threads = options->threads;
	card->backwards = options->threads > 1;
	dev->scalars = card->place.scalars = card_take(dev, sizeof *dev->scalars);
	snprintf(dev->text, sizeof dev->text, "emulated card");
	return true;
}

static bool card_reserve(struct device *dev, const struct dev_limits *limits, struct error *e)
{
	struct card *card = dev->impl;
	dev->workspace = workspace_kernels(limits);
	card->place.workspace = emu_take(dev->workspace);
	card->poisoned = dev->workspace < 1 << 20 ? dev->workspace : 1 << 20;
	return card->place.workspace || error_set(e, CODE_MACHINE, "no room for the workspace");
}

static double card_peak_flops(const struct device *dev, enum dtype compute)
{
	return 0;
}

static struct mark card_mark(struct device *dev, enum queue q)
{
	return (struct mark){q, 0};
}

static void card_wait(struct device *dev, enum queue q, struct mark m)
{
}

static void card_finish(struct device *dev, struct mark m)
{
}

static void card_copy(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	memmove(to, from, bytes);
}

static void card_zero(struct device *dev, enum queue q, void *to, size_t bytes)
{
	memset(to, 0, bytes);
}

static void card_post(struct device *dev, enum queue q, struct work *w)
{
	die(CODE_MACHINE, "the emulated card carries no communication");
}

static bool card_rehearse(struct device *dev, bool on)
{
	return false;
}

static void card_choose(struct device *dev, struct tuning *own, bool timed)
{
}

static void card_told(struct device *dev, const struct tuning *choices)
{
}

const struct backend backend_card = {
	.name = "card",
	.open = card_open,
	.reserve = card_reserve,
	.close = card_close,
	.take = card_take,
	.give_back = card_give_back,
	.take_host = card_take,
	.give_back_host = card_give_back,
	.peak_flops = card_peak_flops,
	.mark = card_mark,
	.wait = card_wait,
	.finish = card_finish,
	.write = card_copy,
	.read = card_copy,
	.copy = card_copy,
	.zero = card_zero,
	.begin = dev_begin_always,
	.end = dev_end_nothing,
	.post = card_post,
	.rehearse = card_rehearse,
	.choose = card_choose,
	.told = card_told,
};
