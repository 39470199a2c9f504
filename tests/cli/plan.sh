#!/bin/bash
# mtrain plan: what it prints, what it refuses, what it leaves behind.
# shellcheck source=tests/cli/expect.sh
scripts=$(realpath "$(dirname "$0")/../../scripts")
. "$(dirname "$0")/expect.sh"

cat >gpt.ini <<-'EOF_INI'
	[model]
	layers = 96
	hidden = 12288
	heads = 96
	sequence = 2048
	vocab = 51200
	[parallel]
	tensor = 8
	pipeline = 8
	[batch]
	global = 64
	micro = 1
EOF_INI
plan=(plan --config gpt.ini --hardware selene)

prints 'it fits' "${plan[@]}"
prints 'would help' "${plan[@]}"
prints 'DOES NOT FIT' "${plan[@]}" --set parallel.pipeline=1
prints 'parallel.recompute = selective' "${plan[@]}" --set batch.micro=8
prints 'measured' "${plan[@]}"
prints "for cuDNN's attention; built without cuDNN 64.0 MiB" plan --config gpt.ini --hardware h100-80gb --set model.layers=8
prints 'data 4 x context 1 x tensor 8' "${plan[@]}" --devices 256

prints '"step_seconds"' "${plan[@]}" --json
for field in tokens_per_second tflops_per_device mfu bubble_fraction fits memory traffic_bytes time_seconds; do
	grep -q "\"$field\"" out || wrong 'plan --json' "no $field"
done
python3 - out <<-'EOF_PY' || wrong 'plan --json' 'its numbers do not fit together'
	import json, sys
	p = json.load(open(sys.argv[1]))
	assert len(p["memory"]) == 8 and len(p["ledger"]) == 8
	for m in p["memory"]:
	    kinds = ["weights", "gradients", "optimizer", "activations", "scratch", "communication", "workspace", "overhead"]
	    assert m["total"] == sum(m[k] for k in kinds), m
	causes = ["compute", "tensor", "context", "pipeline", "data", "bubble", "optimizer"]
	assert abs(sum(p["time_seconds"][c] for c in causes) / p["step_seconds"] - 1) < 1e-6
	assert all(c["mark"] in ("measured", "assumed", "datasheet") and c["source"] for c in p["constants"].values())
EOF_PY

for how in '' --json; do
	"$mtrain" "${plan[@]}" $how >/dev/full 2>err # JSON is longer than what is kept back to the end
	[ $? = 1 ] || wrong "plan $how >/dev/full" 'does not exit 1'
	[ "$(cat err)" = "mtrain: standard output: cannot write" ] || wrong "plan $how >/dev/full" "says: $(cat err)"
done

prints 'it fits' "${plan[@]}" --trace trace.json
python3 -c 'import json; e = json.load(open("trace.json"))["traceEvents"]; assert {x["pid"] for x in e} == set(range(8))' ||
	wrong 'plan --trace' 'is not a trace of 8 stages'

prints 'fewest devices on which it fits' plan --config gpt.ini --hardware selene --search --devices 64 --set batch.global=16
prints '"fewest_devices"' plan --config gpt.ini --hardware selene --search --devices 64 --set batch.global=16 --json
python3 - out <<-'EOF_PY' || wrong 'plan --search --json' 'its layouts are not those of its numbers of devices'
	import json, sys
	s = json.load(open(sys.argv[1]))
	for devices, l in ((s["fewest_devices"], s["fewest_layout"]), (s["devices"], s["longest_layout"]), (s["devices"], s["layouts"][0])):
	    assert l["data"] * l["context"] * l["tensor"] * l["pipeline"] == devices and l["memory"] > 0, l
EOF_PY
refused 2 '--search needs --devices N: for how many' "${plan[@]}" --search
refused 2 '--search compares many steps, and --trace shows one: leave one of them out' "${plan[@]}" --search --devices 64 --trace t
"$mtrain" "${plan[@]}" --search --devices 8 >out 2>err && wrong 'plan --search --devices 8' 'fits'
grep -q 'no layout fits on 8 devices: the nearest .*; the fewest on which one does are' err || wrong 'plan --search' "$(cat err)"

# The fewest devices and the longest sequence: a plan of that layout fits, and they are no less than what is in the list.
printf '[hardware]\nbase = a100-80gb\n[device]\nmemory_gib = 6\n' >six.ini
six=(plan --config gpt.ini --hardware six.ini --set model.layers=24 --set model.hidden=2048 --set model.heads=16 --set model.vocab=50257)
prints 'on 6 devices: 3072, data 1 x context 1' "${six[@]}" --search --devices 6
# Only chunks share the head out well enough: on whatever number of devices the search is.
fewest='micro-batch 1): 6, data 1 x context 1 x tensor 2 x pipeline 3, 8 chunks'
grep -q "$fewest" out || wrong 'plan --search' "$(cat out)"
prints "$fewest" "${six[@]}" --search --devices 8
prints 'it fits' "${six[@]}" --devices 6 --set parallel.tensor=2 --set parallel.pipeline=3 --set parallel.schedule=interleaved \
	--set parallel.chunks=8 --set parallel.recompute=full
prints 'it fits' "${six[@]}" --devices 8 --set parallel.tensor=8 --set parallel.pipeline=1 --set parallel.recompute=full

# A middle stage of a layout that was sketched as good does not fit: the layout is out, not the search.
prints 'does not fit even with full recompute' plan --config gpt.ini --hardware dgxc-h100 --search --devices 2048 --set model.layers=105 \
	--set model.hidden=20480 --set model.heads=128 --set batch.global=1280 --set precision.compute=fp16
grep -q '12 of these were planned in full' out || wrong 'plan --search' 'does not plan the others'

# The table of best layouts: a line for a model that fits, with its own layout beside, one for a model that does not, and the file.
sed 's/^global.*/global = 12/; s/^layers.*/layers = 8/' gpt.ini >small.ini
cp small.ini other.ini # two configs of one model are two lines
"$scripts/plan-layouts" "$mtrain" --devices 64 --hardware selene --report table.md small.ini other.ini >out 2>err || wrong plan-layouts "$(cat err)"
grep -qE '^\| small \| 15[.0-9]* G \| 64 \| 16 \|( [0-9]+ ×){3} [0-9]+ \| .* GiB \| [0-9.]+ s \| [0-9.]+% \| 1 × 8 × 8 × 1, micro 1 \| [0-9.]+ s \|$' out ||
	wrong plan-layouts "$(cat out)"
[ "$(grep -cxF "$(cat out)" table.md)" = 2 ] || wrong plan-layouts 'its report is not what it printed'
"$scripts/plan-layouts" "$mtrain" --devices 8 --hardware selene gpt.ini >out 2>err || wrong plan-layouts "$(cat err)"
grep -q 'does not fit on 8; the fewest are [0-9]' out || wrong plan-layouts "$(cat out)"

# Some runs of the published ones: marked as fitted on is what the stack file names. A run that is not planned, but could be, is an error.
published=$scripts/../tests/golden/published/measured_runs.csv
{ head -n 1 "$published"; grep -E '^(sc21-t1-1.7B|sc21-t1-39.1B|bloom-L635),' "$published"; } >some.csv
"$scripts/plan-accuracy" "$mtrain" some.csv --check-all >out 2>err && wrong plan-accuracy 'passes sets without runs'
grep -q '^ERROR: vTrain: no worst error can be measured$' out || wrong plan-accuracy "$(cat out err)"
"$scripts/plan-accuracy" "$mtrain" some.csv --check --report . >out 2>err || wrong plan-accuracy "$(cat out err)"
[ "$(grep -oE '^[^ ]+ .*% \*' out | cut -d' ' -f1 | tr '\n' ' ')" = 'sc21-t1-39.1B bloom-L635 ' ] || wrong plan-accuracy "marks as fitted: $(cat out)"
sed -i '/^sc21-t1-1.7B/s/,1F1B,/,GPipe,/' some.csv
"$scripts/plan-accuracy" "$mtrain" some.csv --check >out 2>err && wrong plan-accuracy 'passes what it does not plan'
grep -q '^ERROR: sc21-t1-1.7B is not planned: schedule GPipe: there are 1F1B, 1F1B-I, ZB-1p$' out || wrong plan-accuracy "$(cat out err)"
sed -i 's/narayanan2021_table1_weak_scaling/narayanan2031/' some.csv
"$scripts/plan-accuracy" "$mtrain" some.csv >out 2>err && wrong plan-accuracy 'knows a table of 2031'
grep -q '^sc21-t1-1.7B: no set is of table narayanan2031: there are ' err || wrong plan-accuracy "$(cat out err)"

# A trillion parameters, in 200 MB of address space.
most_kib=200000
[ -z "${MTRAIN_SANITIZED:-}" ] || most_kib=unlimited # a sanitizer's shadow is larger
time=$( { TIMEFORMAT=%R; time (ulimit -v "$most_kib"; "$mtrain" plan --config gpt.ini --hardware selene --set model.layers=128 \
	--set model.hidden=25600 --set model.heads=160 --set parallel.pipeline=64 --set batch.global=3072 --devices 3072 >out 2>err); } 2>&1 )
grep -q '1.01 T parameters on 3072' out || wrong 'plan of 1 T' "$(cat err)"
[ -n "${MTRAIN_SANITIZED:-}" ] || [ "${time%.*}" -lt 6 ] || wrong 'plan of 1 T' "took $time s" # 1 s on an idle core

# device.memory counts beside what the device has; auto has what the device has but for the groups of ranks that there are.
prints 'it fits' "${plan[@]}" --set device.memory=60Gi
prints 'DOES NOT FIT' "${plan[@]}" --set device.memory=20Gi
refused 2 'gpt.ini: no layout fits on 64 devices: the nearest with full recompute needs 48.2 GiB of device.memory = 1.00 MiB, mostly optimizer; nor on more, up to 1048576' \
	"${plan[@]}" --search --devices 64 --set device.memory=1Mi --set batch.global=8
printf '[hardware]\nbase = a100-80gb\n[device]\nmemory_gib = %s\n' 1 >little.ini
small=(plan --config gpt.ini --hardware little.ini --json --set parallel.tensor=1 --set parallel.pipeline=1 --set model.layers=2 \
	--set model.hidden=64 --set model.heads=2 --set model.sequence=64 --set model.vocab=257 --set batch.global=8)
"$mtrain" "${small[@]}" >none.json 2>err || wrong 'plan on 1 GiB' "$(cat err)"
"$mtrain" "${small[@]}" --set parallel.recompute=auto >auto.json 2>err || wrong 'plan on 1 GiB with auto' "$(cat err)"
[ "$(grep step_seconds none.json)" = "$(grep step_seconds auto.json)" ] || wrong 'plan on 1 GiB with auto' 'computes again what fits'
printf '[hardware]\nbase = a100-80gb\n[device]\nmemory_gib = %s\n' 0.1 >little.ini
refused 2 'gpt.ini: a100-80gb has 102 MiB, and driver, libraries and groups of ranks take 614 MiB of it' "${small[@]}"

# Tables that the host would fill for a run are not filled for a plan: 16 M positions in the same memory.
(ulimit -v "$most_kib"; "$mtrain" plan --config gpt.ini --hardware selene --set model.sequence=16777216 --set model.position=rope >out 2>err) ||
	wrong 'plan of 16 M rotary positions' "$(cat err)"

# Layers by the thousand in time in proportion.
if [ -z "${MTRAIN_SANITIZED:-}" ]; then
	time=$( { TIMEFORMAT=%U; time "$mtrain" plan --config gpt.ini --hardware selene --set model.layers=8192 --set model.hidden=96 \
		>out 2>err; } 2>&1 )
	grep -q 'of 80.0 GiB' out || wrong 'plan of 8192 layers' "$(cat err)"
	[ "${time%.*}" -lt 30 ] || wrong 'plan of 8192 layers' "took $time s of the processor" # 1.5 to 6 s; it was 50 where it is 1.5
fi

# Nothing is left of a calibration that is stopped while it writes to disk.
mkdir stopped
"$mtrain" calibrate --output stopped/here.ini --backend cpu --threads 1 >out 2>err &
calibration=$!
while kill -0 "$calibration" 2>/dev/null && ! ls -l "/proc/$calibration/fd" 2>/dev/null | grep -q mtrain-calibrate; do
	sleep 0.005
done
kill -INT "$calibration" 2>/dev/null
wait "$calibration"
[ -z "$(ls -A stopped)" ] || [ "$(ls -A stopped)" = here.ini ] || wrong 'a stopped calibration' "leaves $(ls -A stopped)"

# Numbers of devices: one, a prime, the most; none is too much, and what is no count is said to be none.
refused 2 'gpt.ini: 1 devices cannot be divided into parallel.tensor*context*pipeline = 64: 64 devices would do' "${plan[@]}" --devices 1
refused 2 "gpt.ini: no layout divides batch.global = 64 samples, 96 heads and 96 layers over 997 devices: model.layers = 96 are fewer than pipeline = 997; \
batch.global = 64 is not divisible by data = 997, the least that tensor * context * pipeline leave" "${plan[@]}" --search --devices 997
refused 2 "gpt.ini: no layout divides batch.global = 64 samples, 96 heads and 96 layers over 1048576 devices: model.layers = 96 are fewer than pipeline = 128; \
batch.global = 64 is not divisible by data = 2048, the least that tensor * context * pipeline leave" \
	"${plan[@]}" --search --devices 1048576
refused 2 "gpt.ini: no layout divides batch.global = 64 samples, 12 heads and 12 layers over 3125 devices: model.heads = 12 is not divisible by tensor = 5; \
model.ffn = 6144 is not divisible by tensor = 5; model.layers = 12 are fewer than pipeline = 25; \
batch.global = 64 is not divisible by data = 625, the least that tensor * context * pipeline leave" \
	"${plan[@]}" --search --devices 3125 --set model.layers=12 --set model.heads=12 --set model.hidden=1536
for n in 0 -3 4.5 1048577 99999999999999999999; do
	refused 2 "plan: --devices $n: must be a whole number from 1 to 1048576" "${plan[@]}" --search --devices "$n"
done

# More ranks than can be counted, and more stages than layers, whose list no stack writes out.
refused 2 '[parallel] data = 1048576, tensor = 1, context = 1, pipeline = 4096: more than 2147483647 ranks' "${plan[@]}" \
	--set model.layers=4096 --set model.hidden=96 --set parallel.tensor=1 --set parallel.pipeline=4096 --set parallel.data=1048576 --set batch.global=1048576
refused 2 'gpt.ini: parallel.pipeline = 1048576 with model.layers = 96 leaves a stage without a layer: use at most 96 stages' "${plan[@]}" \
	--stack megatron-2021 --set parallel.schedule=interleaved --set parallel.pipeline=1048576 --set parallel.chunks=65536

# What is wrong on any number of devices is said as a plan says it. A layer that does not fit: how much it needs.
refused 2 'gpt.ini: model.hidden = 12289 is not divisible by model.heads = 96: 12288 or 12384 would be' \
	"${plan[@]}" --search --devices 64 --set model.hidden=12289
refused 2 'gpt.ini: v100-32gb has no bf16: precision.compute = fp16 would do' \
	plan --config gpt.ini --hardware v100-32gb --search --devices 64 --set precision.compute=bf16
refused 2 'gpt.ini: no layout fits on 8 devices: the nearest with full recompute needs 1.73 TiB of 80.0 GiB, mostly optimizer; nor on more, up to 1048576' \
	"${plan[@]}" --search --devices 8 --set model.hidden=262144 --set model.heads=2048 --set model.layers=1 --set batch.global=8
for most in 1,65536 128,32768; do
	refused 2 "gpt.ini: batch.global = 2147483647 makes 2147483647 micro-batches of each data rank's part of a step: with \
parallel.pipeline = ${most%,*} and chunks = 1 at most ${most#*,} can be; a larger batch.micro or more data ranks would do" "${plan[@]}" --set batch.global=2147483647 \
		--set "parallel.pipeline=${most%,*}" --set model.layers=128
done
sed '/^micro/d' gpt.ini >searched.ini
prints 'planned in full' plan --config searched.ini --hardware selene --search --devices 64 --set batch.global=8

refused 2 "--output '.': must be the name of a file" calibrate --output .
refused 2 "--output '': must be the name of a file" calibrate --output ''
refused 2 '--output none/here.ini: none: No such file or directory' calibrate --output none/here.ini
refused 2 '--hardware a100-80: there is no such file, and none of that name is built in; did you mean a100-80gb? (a100-40gb, a100-80gb, a800-80gb, b200-180gb, dgxc-h100, h100-80gb, h200-141gb, jean-zay, selene, v100-32gb, vtrain, zero-bubble)' \
	plan --config gpt.ini --hardware a100-80
refused 2 'gpt.ini: 100 devices cannot be divided into parallel.tensor*context*pipeline = 64: 64 or 128 devices would do' "${plan[@]}" --devices 100
refused 2 '--trace: cannot write no/trace.json: No such file or directory' "${plan[@]}" --trace no/trace.json
[ -e no ] && wrong 'plan --trace no/trace.json' 'left something behind'
refused 2 '--trace: cannot write .: Is a directory' "${plan[@]}" --trace .
# A pipe or a device is written into: no file takes its place. A link stays, and what it leads to is replaced.
echo old >target.json && ln -s target.json link.json
prints 'it fits' "${plan[@]}" --trace link.json
[ -L link.json ] && [ ! -L target.json ] && python3 -m json.tool target.json >/dev/null || wrong 'plan --trace link.json' 'not what the link leads to'
ln -s nowhere.json dangling.json && ln -s loop.json loop.json
refused 2 '--trace: cannot write dangling.json: No such file or directory' "${plan[@]}" --trace dangling.json
refused 2 '--trace: cannot write loop.json: Too many levels of symbolic links' "${plan[@]}" --trace loop.json
[ -L dangling.json ] && [ -L loop.json ] && [ ! -e nowhere.json ] || wrong 'plan --trace' 'put a file in place of a link'
mkfifo pipe
cat pipe >piped &
prints 'it fits' "${plan[@]}" --trace pipe
wait $!
[ -p pipe ] || wrong 'plan --trace pipe' 'put a file in its place'
grep -q traceEvents piped || wrong 'plan --trace pipe' 'wrote no trace into it'
printf '[device]\npeak_fp16_tflops = -1\n' >bad.ini
refused 2 'bad.ini:2: peak_fp16_tflops = -1: must be a number from 1e-06 to 1e+12, and may go on with `, measured: source`' \
	plan --config gpt.ini --hardware bad.ini
printf '[device]\npeak_fp16_tflop = 1\n' >bad.ini
refused 2 "bad.ini:2: unknown key 'peak_fp16_tflop' in [device]; did you mean 'peak_fp16_tflops'?" plan --config gpt.ini --hardware bad.ini
printf '[hardware]\nbase = selene\n[device]\nunits = 108, guessed: me\n' >bad.ini
refused 2 'bad.ini:4: units = 108, guessed: me: what follows the comma must be `datasheet: source`, `measured: source` or `assumed: source`' \
	plan --config gpt.ini --hardware bad.ini
printf '[hardware]\nname = mine\n' >bad.ini
refused 2 'bad.ini: [device] peak_fp16_tflops is not given, and has no default' plan --config gpt.ini --hardware bad.ini
refused 2 'gpt.ini: v100-32gb has no bf16: precision.compute = fp16 would do' \
	plan --config gpt.ini --hardware v100-32gb --set precision.compute=bf16

exit $((failed > 0))
