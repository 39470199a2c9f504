#!/bin/bash
# Each bad setting: its message with file and line, exit code 2, one line.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"
"$mtrain" help train >out 2>&1 || exit 77 # this build has no command that reads settings

cat >whole.ini <<'INI'
[run]
steps = 2
[model]
layers = 2
hidden = 24
heads = 6
sequence = 8
vocab = 257
[batch]
global = 4
micro = 2
[optimizer]
lr = 1e-3
[data]
train = nowhere
INI

# with N TEXT: writes bad.ini, whole.ini with TEXT put in as line N.
with() {
	awk -v n="$1" -v text="$2" 'NR == n { print text } { print }' whole.ini >bad.ini
}

refused 2 'missing.ini: No such file or directory' --config missing.ini
refused 2 '.: Is a directory' --config .
refused 2 'train: option --config needs a value: FILE' --config
refused 2 "train: unknown option '--cofnig'; did you mean '--config'?" --cofnig x.ini
refused 2 "train: unknown option '--cofnig'; did you mean '--config'?" train --cofnig x.ini
refused 2 'train: --config FILE is required' train

with 3 'stpes = 3'
refused 2 "bad.ini:3: unknown key 'stpes' in [run]; did you mean 'steps'?" --config bad.ini
with 3 'lr = 3'
refused 2 "bad.ini:3: unknown key 'lr' in [run]; it belongs to [optimizer]" train --config bad.ini
with 3 $'[modle]\nlayers = 1'
refused 2 'bad.ini:4: unknown section [modle]; did you mean [model]?' --config bad.ini
with 1 'steps = 1'
refused 2 "bad.ini:1: 'steps' stands before any [section]" --config bad.ini
with 3 'seed = -4'
refused 2 'bad.ini:3: run.seed = -4: must be at least 0' --config bad.ini
with 3 'max_minutes = soon'
refused 2 'bad.ini:3: run.max_minutes = soon: must be a number at least 0' --config bad.ini
with 3 'steps = 9'
refused 2 'bad.ini:3: run.steps is set a second time; the first is on line 2' --config bad.ini
with 3 'steps'
refused 2 'bad.ini:3: neither [section] nor key = value' --config bad.ini
with 4 'activation = gleu'
refused 2 "bad.ini:4: model.activation = gleu: must be gelu, gelu-erf or swiglu; did you mean 'gelu'?" --config bad.ini

refused 2 'whole.ini: model.heads = 6 cannot be split evenly over parallel.tensor = 4 ranks: a tensor size of 1, 2, 3 or 6 can' \
	--config whole.ini --set parallel.tensor=4
refused 2 'whole.ini: parallel.pipeline = 3 with model.layers = 2 leaves a stage without a layer: use at most 2 stages' \
	--config whole.ini --set parallel.pipeline=3
refused 2 'whole.ini: parallel.stages = 2,0: stage 1 has no layer; each needs at least one' \
	--config whole.ini --set parallel.pipeline=2 --set parallel.stages=2,0
refused 2 'whole.ini: batch.global = 5 is not divisible by batch.micro = 2: 4 or 6 would be' \
	--config whole.ini --set batch.global=5
refused 2 "--set: unknown key 'stpes' in [run]; did you mean 'steps'?" --config whole.ini --set run.stpes=4
refused 2 '--set: model.dropout = 1: must be from 0 to below 1' --config whole.ini --set model.dropout=1
refused 2 '--set steps=4: must be section.key=value' --config whole.ini --set steps=4
refused 2 '[parallel] data = 2, tensor = 1, pipeline = 2 needs 4 ranks, there is only one: start it as `mpirun -n 4 mtrain --config whole.ini` or `srun --mpi=pmix -n 4 mtrain --config whole.ini`' \
	--config whole.ini --set parallel.data=2 --set parallel.pipeline=2
grep -v '^lr' whole.ini >bad.ini
refused 2 'bad.ini: optimizer.lr is required: write it there, or use --set' --config bad.ini

refused 3 'warning: device.graphs = true has no effect, since the device is cpu
mtrain: nowhere: no such file, nor is there nowhere.bin with nowhere.idx' \
	--config whole.ini --set device.graphs=true --set device.backend=cpu

exit $((failed > 0))
