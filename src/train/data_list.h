/* data_list.h: what data.train and data.valid name: "PREFIX", "PREFIX, PREFIX", "weight:PREFIX, weight:PREFIX".
 *
 * Text only: no file is looked at. Used by data. */
#ifndef MTRAIN_TRAIN_DATA_LIST_H
#define MTRAIN_TRAIN_DATA_LIST_H

#include "base/error.h"

struct data_list {
	int count;
	const char **names;
	const char **weights; /* of each name, or NULL: none was given */
	char *text;           /* what the others point into */
};

/* Splits at commas; blanks around the parts do not count. What stands before the first colon of a part is a weight
 * if it is a number, else part of the name. `key` is named in errors. Fails: CODE_USAGE: nothing named, an empty
 * part, weights for some and not for others. */
bool data_list_init(struct data_list *l, const char *key, const char *text, struct error *e);
void data_list_finish(struct data_list *l);

#endif
