/* shard.h: one file of token ids, in any of the formats that are read.
 *
 *   megatron   PREFIX.bin, the ids, and PREFIX.idx (shard_index.h); PREFIX.json, where there is one (shard_facts.h)
 *   llmc       256 int32: magic, version, number of tokens, zeros; then the ids, u16 (magic 20240520, version 1) or
 *              u32 (magic 20240801, version 7)
 *   u16, u32   the ids and nothing else (nanoGPT writes u16)
 *
 * Ids are read by pread, so a shard costs a file descriptor and no memory. Ids are checked when they are read.
 * A shard owns the descriptor, the mapping of the index and its names. Used by shard_stream and inspect. */
#ifndef MTRAIN_TRAIN_SHARD_H
#define MTRAIN_TRAIN_SHARD_H

#include "base/file.h"
#include "train/shard_facts.h"
#include "train/shard_index.h"

enum shard_format { SHARD_AUTO, SHARD_MEGATRON, SHARD_LLMC, SHARD_U16, SHARD_U32, SHARD_FORMATS };

const char *shard_format_name(enum shard_format f); /* "auto", "megatron", "llmc", "u16", "u32" */

/* The format that text names; NULL or "" is auto. Fails: CODE_USAGE, with the nearest name. */
bool shard_format_of(const char *text, enum shard_format *f, struct error *e);

struct shard {
	char *path; /* of the file with the ids */
	enum shard_format format; /* never SHARD_AUTO */
	enum shard_token type;
	int64_t tokens;
	int64_t begin; /* bytes in front of the first id */
	int fd;
	/* Megatron's only; index.path is NULL for the others */
	char *index_path;
	struct file_map map;
	struct shard_index index;
	struct shard_facts facts;
};

/* Which file `name` means, as the path of the file with the ids, into out. `name` is a FILE, a Megatron PREFIX, or
 * either half of the pair; with SHARD_AUTO a pair is preferred. Fails: CODE_DATA: there is none, or no .idx where
 * one is needed. */
bool shard_find(const char *name, enum shard_format format, char out[PATH_ROOM], struct error *e);

/* What the file is: Megatron's if the .idx is beside it, llm.c's if its magic is there, else SHARD_AUTO: headerless ids
 * cannot be told from anything else. Fails: CODE_DATA: unreadable. */
bool shard_recognise(const char *path, enum shard_format *format, struct error *e);

/* Opens what shard_find found. With SHARD_AUTO it must be one that shard_recognise knows.
 * Fails: CODE_DATA: unreadable, not recognised, sizes and counts that disagree. */
bool shard_open(struct shard *s, const char *path, enum shard_format format, struct error *e);
void shard_close(struct shard *s);

/* Documents in the shard; −1: the format does not say. */
int64_t shard_documents(const struct shard *s);

/* Ids begin … begin+count−1 as they are stored, one pread, index entries not looked at. Needs: they are in the shard.
 * Fails: CODE_DATA: the file has become shorter; CODE_MACHINE: it cannot be read. */
bool shard_read_raw(const struct shard *s, int64_t begin, int64_t count, void *out, struct error *e);

/* Ids begin … begin+count−1, with the index entries that cover them and the ids checked; one pread for each 64 KiB.
 * Needs: they are in the shard, count ≥ 1, 0 < vocab < 2³¹.
 * Fails: as shard_read_raw; CODE_DATA: an id is negative or ≥ vocab, or an index entry is wrong. */
bool shard_read(const struct shard *s, int64_t begin, int64_t count, int64_t vocab, int32_t *out, struct error *e);

#endif
