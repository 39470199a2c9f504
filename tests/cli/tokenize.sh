#!/bin/bash
# tokenize from the shell: what it prints and how it ends.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

mkdir -p text/more bare
printf 'abc' >text/a
: >text/more/empty
prints 'new/shard: 2 documents, 5 tokens' tokenize --tokenizer bytes --output new/shard text
[ "$(od -An -tu2 new/shard.bin | xargs)" = '97 98 99 256 256' ] || wrong tokenize "writes: $(od -An -tu2 new/shard.bin)"
[ "$(ls new | xargs)" = 'shard.bin shard.idx shard.json' ] || wrong tokenize "leaves: $(ls new)"
sum=$(cat new/* | cksum)

prints '"kind":"shard"' inspect new/shard --json
prints 'most_id 256' inspect new/shard.bin
mkdir new/shard && prints 'documents 2' inspect new/shard && rmdir new/shard
refused 3 'bare: a folder, but not of a checkpoint or a run' inspect bare
"$mtrain" inspect missing >out 2>err
[ $? = 3 ] || wrong 'inspect missing' "exit code is not 3"

refused 3 'missing: No such file or directory' tokenize --tokenizer bytes --output new/shard text missing
refused 3 'bare: there is no file in this folder' tokenize --tokenizer bytes --output new/shard bare
refused 2 "tokenize: unknown option '--jbos'; did you mean '--jobs'?" tokenize --jbos=1
refused 2 'tokenize: --tokenizer words: the tokenizer that is known is bytes' tokenize --tokenizer words --output a text
refused 2 'output text/a: it lies inside an input folder, which would make it its own input' \
	tokenize --tokenizer bytes --output text/a text
[ "$(cat new/* | cksum)" = "$sum" ] && [ "$(ls new text | xargs)" = 'new: shard.bin shard.idx shard.json text: a more' ] ||
	wrong tokenize "touched: $(ls new text)"

ln -s . text/circle
"$mtrain" tokenize --tokenizer bytes --output new/shard text >out 2>err
[ $? = 0 ] && [ "$(cat err)" = 'mtrain: warning: passed over 1 links to folders, 0 dead links and 0 sockets, pipes and devices' ] ||
	wrong 'tokenize with a link' "says: $(cat err)"

# As on a full disk: a write fails half-way, and the old shard stays.
head -c 9000 /dev/zero >large
(
	trap '' XFSZ
	ulimit -f 8
	refused 1 'new/shard.bin.tmp: File too large' tokenize --tokenizer bytes --output new/shard large
	exit $((failed > 0))
) || failed=1
[ "$(ls new | xargs)" = 'shard.bin shard.idx shard.json' ] || wrong 'tokenize to a full disk' "leaves: $(ls new)"

exit $((failed > 0))
