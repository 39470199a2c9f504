/* tuning.h: what a device has chosen by timing, as text: so that ranks can agree on it, and a checkpoint can keep it.
 *
 * A choice has a key, which says for what (a product's shape, types and layout), and a value, which only the device that
 * made it understands. Two calls with one key and one value give the same bits. Keys are unique.
 *
 * A struct tuning owns its list. Used by backends, and by train, which agrees over ranks. */
#ifndef MTRAIN_DEV_TUNING_H
#define MTRAIN_DEV_TUNING_H

enum { TUNING_KEY = 128, TUNING_VALUE = 176 };

struct tuning_choice {
	char key[TUNING_KEY];
	char value[TUNING_VALUE];
};

struct tuning {
	struct tuning_choice *list; /* [count] */
	int count;
};

/* Adds a choice, or changes the one with this key. */
void tuning_set(struct tuning *t, const char *key, const char *value);
const char *tuning_find(const struct tuning *t, const char *key); /* NULL: there is none */
void tuning_finish(struct tuning *t);

#endif
