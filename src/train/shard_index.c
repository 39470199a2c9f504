#include "train/shard_index.h"

#include <inttypes.h>
#include <string.h>

const unsigned char shard_index_magic[9] = "MMIDIDX\0"; /* the ninth byte is the string's own NUL */

int64_t shard_index_length(const struct shard_index *x, int64_t i)
{
	return shard_token_at(TOKEN_I32, x->lengths, i);
}

int64_t shard_index_offset(const struct shard_index *x, int64_t i)
{
	return shard_token_at(TOKEN_I64, x->offsets, i);
}

int64_t shard_index_document(const struct shard_index *x, int64_t i)
{
	return shard_token_at(TOKEN_I64, x->documents, i);
}

static bool read_header(struct shard_index *x, const unsigned char *data, size_t size, struct error *e)
{
	if (size < SHARD_INDEX_HEADER)
		return error_set(e, CODE_DATA,
				 "%s: %zu bytes long: too short for an index, which begins with %d bytes of "
				 "header",
				 x->path, size, SHARD_INDEX_HEADER);
	if (memcmp(data, shard_index_magic, sizeof shard_index_magic) != 0)
		return error_set(e, CODE_DATA, "%s: does not begin with MMIDIDX: not a Megatron index", x->path);
	uint64_t version = (uint64_t)shard_token_at(TOKEN_I64, data + 9, 0);
	if (version != SHARD_INDEX_VERSION)
		return error_set(e, CODE_DATA, "%s: byte 9: version %" PRIu64 ": only %d is known", x->path, version,
				 SHARD_INDEX_VERSION);
	x->type = (enum shard_token)data[17];
	if (shard_token_size(x->type) == 0)
		return error_set(e, CODE_DATA,
				 "%s: byte 17: type code %d: token ids are of type 1 u8, 2 i8, 3 i16, 4 i32, "
				 "5 i64 or 8 u16",
				 x->path, data[17]);
	x->sequences = shard_token_at(TOKEN_I64, data + 18, 0);
	x->boundaries = shard_token_at(TOKEN_I64, data + 26, 0);
	return true;
}

/* The counts must account for every byte. Bounded by the size first, so that the products cannot overflow. */
static bool place_arrays(struct shard_index *x, const unsigned char *data, size_t size, struct error *e)
{
	uint64_t s = (uint64_t)x->sequences, d = (uint64_t)x->boundaries;
	if (s > size / 12 || d > size / 8 || SHARD_INDEX_HEADER + 12 * s + 8 * d > size)
		return error_set(e, CODE_DATA,
				 "%s: %zu bytes long, but bytes 18 and 26 count %" PRIu64 " sequences and %" PRIu64
				 " document boundaries, which need %d + 12·%" PRIu64 " + 8·%" PRIu64
				 ": truncated, or wrong counts",
				 x->path, size, s, d, SHARD_INDEX_HEADER, s, d);
	size_t whole = SHARD_INDEX_HEADER + 12 * s + 8 * d;
	if (size == whole + s && s > 0)
		return error_set(e, CODE_DATA,
				 "%s: has a mode for each sequence behind the document boundaries: shards of "
				 "several modes cannot be read, only text",
				 x->path);
	if (size != whole)
		return error_set(e, CODE_DATA, "%s: %zu bytes long, %zu more than %" PRIu64 " sequences and %" PRIu64
				 " document boundaries take: wrong counts", x->path, size, size - whole, s, d);
	x->lengths = data + SHARD_INDEX_HEADER;
	x->offsets = x->lengths + 4 * s;
	x->documents = x->offsets + 8 * s;
	return true;
}

bool shard_index_init(struct shard_index *x, const char *path, const void *data, size_t size, int64_t bin_bytes,
		      struct error *e)
{
	*x = (struct shard_index){.path = path, .bin_bytes = bin_bytes};
	if (!read_header(x, data, size, e) || !place_arrays(x, data, size, e))
		return false;
	int64_t token = (int64_t)shard_token_size(x->type), last = x->sequences - 1;
	x->tokens = bin_bytes / token;
	if (bin_bytes % token != 0)
		return error_set(e, CODE_DATA,
				 "%s: its .bin is %" PRId64 " bytes long, not a multiple of %" PRId64 ": truncated",
				 path, bin_bytes, token);
	if (x->boundaries < 1)
		return error_set(e, CODE_DATA, "%s: has no document boundaries: the first must be 0, the last %" PRId64,
				 path, x->sequences);
	if (shard_index_document(x, 0) != 0 || shard_index_document(x, x->boundaries - 1) != x->sequences)
		return error_set(e, CODE_DATA,
				 "%s: document boundaries run from %" PRId64 " to %" PRId64 ": the first must be "
				 "0, the last the number of sequences, %" PRId64,
				 path, shard_index_document(x, 0), shard_index_document(x, x->boundaries - 1),
				 x->sequences);
	if (x->sequences == 0)
		return bin_bytes == 0 || error_set(e, CODE_DATA, "%s: has no sequences, but its .bin is %" PRId64
						   " bytes long", path, bin_bytes);
	if (shard_index_offset(x, 0) != 0)
		return error_set(e, CODE_DATA, "%s: sequence 0 begins at byte %" PRId64 " of the .bin: it must be 0",
				 path, shard_index_offset(x, 0));
	int64_t offset = shard_index_offset(x, last), length = shard_index_length(x, last);
	if (offset < 0 || offset > bin_bytes || length < 0 || length * token != bin_bytes - offset)
		return error_set(e, CODE_DATA,
				 "%s: sequence %" PRId64 ", the last, begins at byte %" PRId64 " and has %" PRId64
				 " tokens of %" PRId64 " bytes, but the .bin is %" PRId64
				 " bytes long: truncated, or not the "
				 "same pair",
				 path, last, offset, length, token, bin_bytes);
	return true;
}

/* Sequence i must end where the next begins, or where the .bin ends. *end: that byte. */
static bool check_sequence(const struct shard_index *x, int64_t i, int64_t *end, struct error *e)
{
	int64_t token = (int64_t)shard_token_size(x->type);
	int64_t offset = shard_index_offset(x, i), length = shard_index_length(x, i);
	if (length < 0)
		return error_set(e, CODE_DATA,
				 "%s: sequence %" PRId64 " has %" PRId64 " tokens: a length cannot be negative",
				 x->path, i, length);
	if (offset < 0 || offset > x->bin_bytes || length * token > x->bin_bytes - offset)
		return error_set(e, CODE_DATA,
				 "%s: sequence %" PRId64 " begins at byte %" PRId64 " and has %" PRId64
				 " tokens of %" PRId64 " bytes: out of range in a .bin of %" PRId64 " bytes",
				 x->path, i, offset, length, token, x->bin_bytes);
	if (offset % token != 0)
		return error_set(e, CODE_DATA,
				 "%s: sequence %" PRId64 " begins at byte %" PRId64 ", inside a token of %" PRId64
				 " bytes",
				 x->path, i, offset, token);
	int64_t next = i + 1 < x->sequences ? shard_index_offset(x, i + 1) : x->bin_bytes;
	*end = offset + length * token;
	if (next == *end)
		return true;
	if (next < 0 || next > x->bin_bytes)
		return error_set(e, CODE_DATA,
				 "%s: sequence %" PRId64 " begins at byte %" PRId64
				 ": out of range in a .bin of %" PRId64 " bytes",
				 x->path, i + 1, next, x->bin_bytes);
	return error_set(e, CODE_DATA,
			 "%s: sequence %" PRId64 " begins at byte %" PRId64 ", but sequence %" PRId64 " ends at "
			 "byte %" PRId64 ": %s",
			 x->path, i + 1, next, i, *end,
			 next < *end ? "they overlap" : "the bytes between belong to no sequence");
}

bool shard_index_check(const struct shard_index *x, int64_t begin, int64_t count, struct error *e)
{
	int64_t token = (int64_t)shard_token_size(x->type);
	check(begin >= 0 && count >= 1 && count <= x->tokens - begin);
	/* The last sequence that begins at or before the first byte: of several that begin there the one with
	 * tokens. */
	int64_t i = 0, beyond = x->sequences;
	while (beyond - i > 1) {
		int64_t middle = i + (beyond - i) / 2;
		if (shard_index_offset(x, middle) <= begin * token)
			i = middle;
		else
			beyond = middle;
	}
	int64_t end = 0;
	do {
		if (!check_sequence(x, i++, &end, e))
			return false;
	} while (end < (begin + count) * token);
	return true;
}

/* Where document d begins, in tokens. */
static bool document_begin(const struct shard_index *x, int64_t d, int64_t *token, struct error *e)
{
	int64_t sequence = shard_index_document(x, d), size = (int64_t)shard_token_size(x->type);
	if (sequence < 0 || sequence > x->sequences)
		return error_set(e, CODE_DATA,
				 "%s: document boundary %" PRId64 " is sequence %" PRId64 ": out of range, there "
				 "are %" PRId64,
				 x->path, d, sequence, x->sequences);
	int64_t offset = sequence < x->sequences ? shard_index_offset(x, sequence) : x->bin_bytes;
	if (offset < 0 || offset > x->bin_bytes || offset % size != 0)
		return error_set(e, CODE_DATA,
				 "%s: sequence %" PRId64 " begins at byte %" PRId64 ": out of range or inside a "
				 "token of a .bin of %" PRId64 " bytes",
				 x->path, sequence, offset, x->bin_bytes);
	*token = offset / size;
	return true;
}

bool shard_index_around(const struct shard_index *x, int64_t target, int64_t *before, int64_t *after, struct error *e)
{
	check(target >= 0 && target < x->tokens);
	int64_t d = 0, beyond = x->boundaries - 1;
	*before = 0;
	*after = x->tokens;
	while (beyond - d > 1) {
		int64_t middle = d + (beyond - d) / 2, token = 0;
		if (!document_begin(x, middle, &token, e))
			return false;
		if (token < *before || token > *after)
			return error_set(e, CODE_DATA,
					 "%s: document %" PRId64 " begins at token %" PRId64 ": out of order, its "
					 "neighbours begin at %" PRId64 " and %" PRId64,
					 x->path, middle, token, *before, *after);
		if (token <= target) {
			d = middle;
			*before = token;
		} else {
			beyond = middle;
			*after = token;
		}
	}
	return true;
}

bool shard_index_scan(const struct shard_index *x, struct error *e)
{
	for (int64_t i = 0, end; i < x->sequences; i++)
		if (!check_sequence(x, i, &end, e))
			return false;
	for (int64_t d = 1; d < x->boundaries; d++) {
		int64_t last = shard_index_document(x, d - 1), this = shard_index_document(x, d);
		if (this < last || this > x->sequences)
			return error_set(e, CODE_DATA,
					 "%s: document boundary %" PRId64 " is sequence %" PRId64 ": %s %" PRId64,
					 x->path, d, this,
					 this < last ? "before the one in front of it," : "out of range, there are",
					 this < last ? last : x->sequences);
	}
	return true;
}
