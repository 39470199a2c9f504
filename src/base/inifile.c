#include "base/inifile.h"

#include <ctype.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 64 }; /* more than inih keeps of a name */

/* Hands the text to inih in pieces that fit its line buffer (200 bytes in distributions): a long line becomes a first
 * piece and indented ones, which inih takes for more of the same value. */
struct reader {
	const char *at, *end;     /* what has not been looked at */
	const char *rest, *stop;  /* of the current line, trimmed */
	int line, pieces;
	bool first;               /* the piece handed out last begins a line */
	bool too_long;            /* no place to cut the line, */
	bool no_section;          /* or it begins as a section and is none */
	int room;                 /* of inih's buffer */
};

/* A setting that was handed on. */
struct seen {
	char section[NAME_ROOM], key[NAME_ROOM];
	int line;
};

struct parse {
	struct reader reader;
	const char *path;
	struct seen *seen;
	int seen_count, seen_room;
	bool (*f)(void *context, const struct inifile_entry *entry, struct error *e);
	void *context;
	struct error *e;
	bool failed;              /* f said no, or there is no memory */
	int line;                 /* of the setting that is being gathered; 0: none */
	char section[NAME_ROOM], key[NAME_ROOM];
	char *value;
	size_t length, value_room;
};

static bool blank(char c)
{
	return isspace((unsigned char)c);
}

static void next_line(struct reader *r)
{
	const char *s = r->at, *newline = memchr(s, '\n', (size_t)(r->end - s));
	const char *e = newline ? newline : r->end;
	r->at = newline ? newline + 1 : r->end;
	r->line++;
	while (s < e && blank(*s))
		s++;
	for (const char *p = s; p < e; p++)
		if ((*p == ';' && (p == s || blank(p[-1]))) || (*p == '#' && p == s))
			e = p;
	while (e > s && blank(e[-1]))
		e--;
	r->rest = s;
	r->stop = e;
	r->first = true;
	/* inih would pass over what follows the bracket. */
	r->no_section = s < e && *s == '[' && memchr(s, ']', (size_t)(e - s)) != e - 1;
}

/* Where to cut a line that does not fit: not beside white space, which inih drops, nor before what begins a comment. */
static size_t cut(const char *s, size_t n, bool first)
{
	while (n > 0 && (blank(s[n - 1]) || blank(s[n]) || s[n] == ';' || s[n] == '#'))
		n--;
	bool whole_name = !first || memchr(s, '=', n) || memchr(s, ':', n);
	return whole_name && *s != '[' ? n : 0;
}

static char *read_piece(char *out, int room, void *stream)
{
	struct reader *r = stream;
	bool more = r->rest < r->stop;
	if (r->too_long || r->no_section || (!more && r->at == r->end))
		return NULL;
	r->room = room;
	r->first = false;
	if (!more)
		next_line(r);
	if (r->no_section)
		return NULL;
	size_t n = (size_t)(r->stop - r->rest), most = (size_t)room - 3; /* indent, newline, NUL */
	if (n > most) {
		n = cut(r->rest, most, r->first);
		r->too_long = n == 0;
	}
	char *p = out;
	if (!r->first)
		*p++ = ' ';
	if (n > 0)
		memcpy(p, r->rest, n);
	p[n] = '\n';
	p[n + 1] = '\0';
	r->rest += n;
	r->pieces++;
	return out;
}

static void reader_stop(struct reader *r)
{
	r->at = r->end;
	r->rest = r->stop;
}

static bool no_memory(struct parse *p)
{
	p->failed = true;
	reader_stop(&p->reader);
	return error_set(p->e, CODE_MACHINE, "out of memory");
}

static bool append(struct parse *p, const char *text)
{
	size_t n = strlen(text);
	if (p->length + n + 1 > p->value_room) {
		size_t room = (p->length + n + 1) * 2;
		char *more = realloc(p->value, room);
		if (!more)
			return no_memory(p);
		p->value = more;
		p->value_room = room;
	}
	memcpy(p->value + p->length, text, n + 1);
	p->length += n;
	return true;
}

static bool new_to(struct parse *p)
{
	for (int i = 0; i < p->seen_count; i++)
		if (strcmp(p->seen[i].section, p->section) == 0 && strcmp(p->seen[i].key, p->key) == 0)
			return error_set(p->e, CODE_USAGE, "%s:%d: %s.%s is set a second time; the first is on line %d", p->path, p->line,
					 p->section, p->key, p->seen[i].line);
	if (p->seen_count == p->seen_room) {
		int room = 2 * p->seen_room + 64;
		struct seen *more = realloc(p->seen, (size_t)room * sizeof *more);
		if (!more)
			return no_memory(p);
		p->seen = more;
		p->seen_room = room;
	}
	struct seen *s = &p->seen[p->seen_count++];
	memcpy(s->section, p->section, NAME_ROOM);
	memcpy(s->key, p->key, NAME_ROOM);
	s->line = p->line;
	return true;
}

/* The setting is whole when the next one begins. */
static bool give(struct parse *p)
{
	struct inifile_entry entry = {p->section, p->key, p->value, p->line};
	if (p->line == 0 || p->failed)
		return !p->failed;
	p->failed = !new_to(p) || !p->f(p->context, &entry, p->e);
	if (p->failed)
		reader_stop(&p->reader);
	else
		p->line = 0;
	return !p->failed;
}

static int take(void *user, const char *section, const char *key, const char *value)
{
	struct parse *p = user;
	if (p->failed)
		return 0;
	if (!p->reader.first && p->line > 0)
		return append(p, value ? value : "");
	if (!give(p))
		return 0;
	p->line = p->reader.line;
	p->length = 0;
	strncpy(p->section, section, NAME_ROOM - 1);
	strncpy(p->key, key, NAME_ROOM - 1);
	return append(p, value ? value : "");
}

/* inih counts pieces; the line that a piece is of. */
static int line_of_piece(const char *text, size_t bytes, int piece, int room)
{
	char buf[1024];
	struct reader r = {.at = text, .end = text + bytes};
	while (r.pieces < piece && room <= (int)sizeof buf && read_piece(buf, room, &r))
		;
	return r.line;
}

bool inifile_read(const char *path, const char *text, size_t bytes,
		  bool (*f)(void *context, const struct inifile_entry *entry, struct error *e), void *context,
		  struct error *e)
{
	struct parse p = {.reader = {.at = text, .end = text + bytes}, .path = path, .f = f, .context = context, .e = e};
	const char *zero = memchr(text, '\0', bytes);
	if (zero)
		return error_set(e, CODE_USAGE, "%s: byte 0 at offset %zu: not a text file", path,
				 (size_t)(zero - text));
	int wrong = ini_parse_stream(read_piece, &p.reader, take, &p);
	int wrong_line = p.reader.too_long || p.reader.no_section ? p.reader.line : 0;
	if (wrong > 0) /* a line it could not read, or the one at which take() refused */
		wrong_line = line_of_piece(text, bytes, wrong, p.reader.room);
	if (!p.failed && (wrong_line == 0 || p.line < wrong_line))
		give(&p);
	free(p.value);
	free(p.seen);
	if (p.failed && (wrong_line == 0 || p.line <= wrong_line))
		return false;
	if (wrong_line > 0)
		return error_set(e, CODE_USAGE, "%s:%d: neither [section] nor key = value", path, wrong_line);
	if (wrong < 0)
		return error_set(e, CODE_MACHINE, "out of memory");
	return true;
}

bool inifile_can_hold(const char *value)
{
	size_t n = strlen(value);
	if (n > 0 && (blank(value[0]) || blank(value[n - 1])))
		return false;
	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)value[i]) || (value[i] == ';' && (i == 0 || blank(value[i - 1]))))
			return false;
	return true;
}
