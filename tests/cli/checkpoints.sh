#!/bin/bash
# Published weights become a checkpoint; checkpoints, runs and safetensors files are looked at, whole and harmed.
# shellcheck source=tests/cli/expect.sh
weights=$(realpath "$(dirname "$0")/../golden/gpt2-tiny")
. "$(dirname "$0")/expect.sh"

cat >gpt.ini <<'INI'
[run]
dir = r
[model]
hidden = 32
dropout = 0.1
INI
step=r/checkpoints/step-00000000
import=(import --format hf --input "$weights" --config gpt.ini)

# What the INI file gives must agree; nothing is left of a refused import.
sed 's/"n_embd": 32/"n_embd": 48/' "$weights/config.json" >config.json
refused 2 "gpt.ini:4: model.hidden = 32, but ./config.json has 48: leave it out or make them agree" \
	import --format hf --input . --config gpt.ini
refused 2 "--set: model.layers = 3, but $weights/config.json has 2: leave it out or make them agree" \
	"${import[@]}" --set model.layers=3
refused 2 "import: --format gguf: what can be read is hf" import --format gguf --input . --config gpt.ini
refused 2 "none.ini: No such file or directory" import --format hf --input . --config none.ini
refused 4 "none/config.json: No such file or directory" import --format hf --input none --config gpt.ini
refused 4 "./model.safetensors: No such file or directory" import --format hf --input . --config gpt.ini --set model.hidden=48
sed 's/gelu_new/relu/' "$weights/config.json" >config.json
refused 4 "./config.json: activation_function relu is not supported; gelu_new and gelu are" \
	import --format hf --input . --config gpt.ini
[ -e r ] && wrong 'import' "left $(find r)"

prints "$step: 29.2 k parameters from $weights" "${import[@]}"
prints "$step: 29.2 k parameters from $weights" "${import[@]}" # again: the same
prints "step-00000000 valid" inspect r
prints "loss_scale 65536" inspect "$step"
prints "settings.model.layers 2" inspect "$step"
prints "weight/layers.1.attention.qkv.weight F32 [4,3,8,32] 1" inspect "$step"
prints "m/norm.bias F32 [32] 0" inspect "$step"
prints '"name":"weight/norm.bias","dtype":"F32","shape":[32],"pieces":1' inspect --json "$step"
prints '{"kind":"safetensors"' inspect "$step/rank-00000.safetensors" --json
prints 'transformer.wpe.weight F32 [16,32]' inspect "$weights/model.safetensors"
"$mtrain" inspect "$step" | grep -q 'model.dropout' && wrong "inspect $step" "fixes dropout"

# A run shows its checkpoints and the last whole lines of its metrics.
for i in 1 2 3 4 5 6 7; do echo "{\"kind\":\"train\",\"step\":$i}"; done >r/metrics.jsonl
printf '{"kind":"train","st' >>r/metrics.jsonl
prints '"metrics":[{"kind":"train","step":3},{"kind":"train","step":4}' inspect r --json
prints 'train 7' inspect r

# A run that has gone on is not set back.
cp -r "$step" r/checkpoints/step-00000005
refused 2 "import: r/checkpoints already holds step 5, from which a run would go on; give another run.dir" "${import[@]}"

# One byte in a file; one byte in the manifest; a file that is too short.
cp -r "$step" harmed
printf '\001' | dd of=harmed/rank-00000.safetensors bs=1 seek=9000 conv=notrunc status=none
"$mtrain" inspect harmed >out 2>err
[ $? = 4 ] || wrong 'inspect harmed' "exit code is not 4"
grep -q 'rank-00000.safetensors .* not valid' out || wrong 'inspect harmed' "does not say which"
[ "$(cat err)" = "mtrain: harmed/rank-00000.safetensors: its checksum is not what the manifest says: a byte has changed" ] ||
	wrong 'inspect harmed' "says: $(cat err)"
sed -i 's/"step":\t0/"step":\t1/' r/checkpoints/step-00000005/manifest.json
prints "step-00000005 not valid r/checkpoints/step-00000005/manifest.json: its checksum is" inspect r
head -c 5000 "$weights/model.safetensors" >short.safetensors
"$mtrain" inspect short.safetensors >out 2>err
[ $? = 4 ] || wrong 'inspect short.safetensors' "exit code is not 4"
grep -q 'are not within the 2200 bytes of data' err || wrong 'inspect short.safetensors' "says: $(cat err)"
refused 2 "inspect: an argument is missing: usage: mtrain inspect PATH [--json]" inspect

# A disk that is full: training goes on without checkpoints, but a run whose last one is missing has not finished well.
head -c 400 "$weights/config.json" >text
"$mtrain" tokenize --tokenizer bytes --output tokens text >out 2>err || wrong tokenize "$(cat err)"
printf '%s\n' '[run]' 'steps = 2' 'dir = full' '[model]' 'layers = 1' 'hidden = 8' 'heads = 2' 'sequence = 4' '[batch]' 'global = 2' 'micro = 2' \
	'[optimizer]' 'lr = 1e-3' '[data]' 'train = tokens' '[device]' 'threads = 1' 'backend = cpu' >run.ini
(
	trap '' XFSZ
	ulimit -f 16
	"$mtrain" --config run.ini >out 2>err
	[ $? = 1 ] || wrong 'train on a full disk' "exit code is not 1"
	exit $((failed > 0))
) || failed=1
[ "$(tail -n 1 err)" = 'mtrain: finished, but without a checkpoint of step 2' ] || wrong 'train on a full disk' "says: $(cat err)"
[ -z "$(ls -A full/checkpoints)" ] || wrong 'train on a full disk' "leaves $(ls -A full/checkpoints)"
"$mtrain" --config run.ini >out 2>err || wrong 'train where there is room again' "$(cat err)"
prints 'step-00000002 valid' inspect full

exit $((failed > 0))
