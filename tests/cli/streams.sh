#!/bin/bash
# Standard streams that are closed, full or no longer read; pipes and devices where a file is expected.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

"$mtrain" help >&- 2>err
[ $? = 1 ] || wrong 'help >&-' 'does not exit 1'
[ "$(cat err)" = 'mtrain: standard output: cannot write' ] || wrong 'help >&-' "says: $(cat err)"
"$mtrain" help >out 2>&- <&- || wrong 'help 2>&- <&-' "exit code $?"

printf 'some text, and then some more of it' >text
"$mtrain" tokenize --tokenizer bytes --output tokens text >out 2>err || wrong tokenize "$(cat err)"
cat >run.ini <<'INI'
[run]
steps = 3
dir = r
[model]
layers = 1
hidden = 8
heads = 2
sequence = 4
vocab = 257
[batch]
global = 2
micro = 2
[optimizer]
lr = 1e-3
[data]
train = tokens
[device]
threads = 1
backend = cpu
INI
run=(--config run.ini)

# Nothing of the console gets into a run's files.
"$mtrain" "${run[@]}" >&- 2>&- <&- || wrong 'train with closed streams' "exit code $?"
python3 - <<'EOF_PY' || wrong 'train with closed streams' "metrics.jsonl begins with $(head -n 1 r/metrics.jsonl)"
import json
assert [x["step"] for x in map(json.loads, open("r/metrics.jsonl")) if x["kind"] == "train"] == [1, 2, 3]
EOF_PY
prints 'step-00000003 valid' inspect r

# A run goes on when nobody reads its console any more.
"$mtrain" "${run[@]}" --set run.dir=long --set run.steps=300 | head -n 1 >out
[ "${PIPESTATUS[0]}" = 0 ] || wrong 'train | head' 'ends with its console'
prints 'step-00000300 valid' inspect long
"$mtrain" "${run[@]}" --set run.dir=full >/dev/full || wrong 'train >/dev/full' "exit code $?"

# As many tokens as anybody asks for, while somebody reads them.
"$mtrain" sample --checkpoint r --prompt "$(head -c 1000 /dev/zero | tr '\0' a)" --tokens 9223372036854775807 >/dev/full 2>err
[ "$(cat err)" = 'mtrain: standard output: cannot write' ] || wrong 'sample >/dev/full' "says: $(cat err)"

# What has no end is not read to it, and what nobody writes to is not waited for.
(
	[ -n "${MTRAIN_SANITIZED:-}" ] || ulimit -v 4000000
	refused 2 '/dev/zero: goes on after 16777216 bytes, the most that is read from what is no regular file' --config /dev/zero
	mkfifo pipe
	exec 3<>pipe # a writer that writes nothing
	refused 2 'pipe: nothing to read has come for 10 seconds, nor its end' --config pipe
	exec 3>&-
	refused 3 'pipe: not a regular file' "${run[@]}" --set run.dir=none --set data.train=pipe
	mkfifo pipe.safetensors
	[ "$("$mtrain" inspect pipe.safetensors 2>&1 >out)" = 'mtrain: pipe.safetensors: not a regular file' ] || wrong 'inspect pipe.safetensors' 'waits'
	exit $((failed > 0))
) || failed=1
cat run.ini | "$mtrain" --config /dev/stdin >out 2>err || wrong 'train --config /dev/stdin' "$(cat err)"
(sleep 1; cat run.ini >pipe) &
"$mtrain" --config pipe >out 2>err || wrong 'train --config pipe' "$(cat err)"
wait

exit $((failed > 0))
