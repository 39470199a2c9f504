/* setting.h: one setting as a row of plain data, and the table of all of them.
 *
 * Whatever concerns settings walks this table: the INI file, --set, the resolved config.ini, `mtrain help settings`,
 * the settings inside a checkpoint, unknown names. So a setting is added in one place and cannot be accepted without a
 * range and a line of help.
 *
 * The table is constant. Used by config and by help. */
#ifndef MTRAIN_TRAIN_SETTING_H
#define MTRAIN_TRAIN_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct config;

enum setting_type {
	SETTING_COUNT,  /* int64_t: text_to_count */
	SETTING_NUMBER, /* double: text_to_number */
	SETTING_BOOL,   /* bool */
	SETTING_CHOICE, /* an enum: one of `choices` */
	SETTING_TEXT,   /* const char *; where there are choices, one of them */
};

struct setting_choice {
	const char *name; /* the list ends with NULL */
	int value;        /* for SETTING_CHOICE */
};

struct setting {
	const char *section, *key;
	enum setting_type type;
	size_t offset;       /* of the field in struct config */
	/* NULL: required. A text that is a value of the type is the default; any other text of a COUNT, NUMBER or BOOL
	 * is a rule over other settings of the same section, else of any: KEY, NUMBER*KEY or KEY/KEY, its result left
	 * unset where it is not whole and must be. In a TEXT, NAME stands for the stem of the config file's name. */
	const char *initial;
	const char *range;   /* base/range.h; NULL for any */
	const char *word;    /* stands for 0 in a COUNT or NUMBER ("auto", or "": nothing); NULL: there is none */
	const struct setting_choice *choices;
	bool orders_data;    /* a change on resume breaks the order of the data */
	double (*other)(const struct config *c); /* where not NULL and not 0, the default in place of the rule */
	const char *help;
};

extern const struct setting setting_table[]; /* sections together; a rule stands below what it needs */
extern const int setting_count;
enum { SETTING_MAX = 96, SETTING_ROOM = 64 };

/* NULL: there is none. */
const struct setting *setting_find(const char *section, const char *key);

bool setting_is_section(const char *section);

/* What is nearest to an unknown section or key, as the end of an error message: "; did you mean 'steps'?", else where
 * the list of all can be had. Returns buf. */
char *setting_hint_section(char *buf, size_t room, const char *section);
char *setting_hint_key(char *buf, size_t room, const char *section, const char *key);

/* Reads `text` into the setting's field of *c; for SETTING_TEXT the field then points to `text`. Fails: *reason
 * (setting_reason room) says what the value must be, to be put behind "section.key = text: ". */
enum { SETTING_REASON = 160 };
bool setting_read(const struct setting *s, struct config *c, const char *text, char reason[SETTING_REASON]);

/* The field's value as setting_read takes it back, with as few digits as give the same bits. Texts are returned as they
 * are, all others in buf[SETTING_ROOM]. */
const char *setting_print(const struct setting *s, const struct config *c, char buf[SETTING_ROOM]);

/* The field as a number, for rules: COUNT, NUMBER, BOOL. And back; false if it must be whole and is not. */
double setting_number(const struct setting *s, const struct config *c);
bool setting_set_number(const struct setting *s, struct config *c, double value);

/* All settings with their defaults and help, in the form of an INI file: `mtrain help settings`. */
void setting_print_help(FILE *out);

#endif
