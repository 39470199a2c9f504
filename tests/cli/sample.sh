#!/bin/bash
# sample from the shell: a model of bytes goes on writing, however small it is.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

mkdir text
for i in $(seq 40); do echo "line $i of a text"; done >text/a
"$mtrain" tokenize --tokenizer bytes --output tokens text >out || wrong tokenize "$(cat out)"

# train NAME SETTING...: two steps of a model whose sequence holds fewer numbers than there are tokens to choose from.
train() {
	local name=$1 sets=()
	shift
	for set in "$@"; do sets+=(--set "$set"); done
	printf '[model]\nlayers = 1\nhidden = 8\nheads = 2\nsequence = 4\n[run]\nsteps = 2\n[batch]\nglobal = 2\nmicro = 1\n' >"$name.ini"
	printf '[optimizer]\nlr = 0.01\n[data]\ntrain = tokens\n[device]\nthreads = 1\n' >>"$name.ini"
	prints 'step 2/2' --config "$name.ini" "${sets[@]}"
}

# writes RUN: six tokens at most behind the prompt, the same ones each time.
writes() {
	local once
	prints 'li' sample --checkpoint "runs/$1" --prompt li --tokens 6 --seed 7
	once=$(cksum <out)
	[ "$(head -c 2 out)" = li ] && [ "$(wc -c <out)" -le 9 ] || wrong "sample of $1" "writes: $(od -c out)"
	prints 'li' sample --checkpoint "runs/$1" --prompt li --tokens 6 --seed 7
	[ "$(cksum <out)" = "$once" ] || wrong "sample of $1" "does not repeat itself"
}

train plain
writes plain
train wide model.vocab=1000 model.tied=false model.normalized_head=true precision.compute=fp32
writes wide
prints '' sample --checkpoint runs/plain --prompt '' --tokens 1 --temperature 0
refused 4 'none/manifest.json: No such file or directory' sample --checkpoint none --prompt li

exit $((failed > 0))
