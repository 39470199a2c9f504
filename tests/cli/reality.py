"""reality.py MTRAIN [MPIRUN]: a plan against the run: this machine is calibrated, eight configs are planned and run, on one rank, and
where there is an mpirun four on two ranks.

Memory must agree to the byte. A step's seconds are those of the processor, of a rank: of runs of two lengths, the shortest of
two, the difference by the steps between them. On one thread that is what an idle machine's clock shows, and what else runs here
does not count. Nor does a rank count while it sleeps until another stage has come: the plan's bubble is left out. What else runs
does take caches and the clock, between calibration and run too: seconds that are out of bounds are tried again, calibration
and all."""
import array
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile

SHORT, LONG = 2, 6
TRIES = 3
# Mean and worst of the seconds: the rates are points, and what else runs takes caches and the clock; from two ranks one of two cores.
BOUNDS = {1: (0.2, 0.4), 2: (0.3, 0.45)}

CONFIGS = [
    # layers, hidden, heads, sequence, micro, micros, compute, more
    (2, 256, 4, 128, 4, 2, "fp32", []),
    (4, 256, 4, 256, 2, 2, "fp32", ["parallel.recompute=full"]),
    (2, 512, 8, 256, 2, 1, "fp32", []),
    (3, 384, 6, 128, 8, 1, "fp32", ["model.activation=swiglu"]),
    (2, 512, 8, 128, 4, 2, "fp16", []),
    (4, 256, 4, 256, 4, 1, "fp16", ["parallel.recompute=selective"]),
    (2, 512, 8, 256, 2, 1, "bf16", []),
    (2, 256, 4, 512, 1, 2, "bf16", []),
]

TWO_RANKS = [
    (4, 256, 4, 256, 2, 4, "fp32", ["parallel.tensor=2"]),
    (4, 256, 4, 256, 2, 2, "fp16", ["parallel.tensor=2", "parallel.sequence=false"]),
    (2, 512, 8, 256, 2, 2, "fp32", ["parallel.data=2"]),
    (4, 256, 4, 256, 2, 8, "fp32", ["parallel.pipeline=2"]),
]


def call(*words):
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit code {r.returncode}: {r.stderr}")
    return r.stdout


def run(command, ini, sets, steps):
    """Seconds of the processor that a run takes, of all its threads and ranks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(*command, "--config", ini, *sets, "--set", f"run.steps={steps}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(mtrain, launch, ranks, folder, configs):
    """Whether the memory of all is as planned and the machine's is shared out, and how far off each one's seconds are."""
    alike, errors = True, []
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    hardware = folder / f"here{ranks}.ini"
    call(*launch, mtrain, "calibrate", "--output", hardware, "--backend", "cpu", "--threads", 1)
    for i, (layers, hidden, heads, sequence, micro, micros, compute, more) in enumerate(configs):
        ini = folder / f"c{ranks}-{i}.ini"
        samples = micro * micros * (2 if "parallel.data=2" in more else 1)
        ini.write_text(f"[run]\nsteps = 1\ndir = {folder}/run{ranks}-{i}\n[model]\nlayers = {layers}\nhidden = {hidden}\nheads = {heads}\n"
                       f"sequence = {sequence}\nvocab = 1000\n[batch]\nglobal = {samples}\nmicro = {micro}\n"
                       f"[precision]\ncompute = {compute}\n[optimizer]\nlr = 1e-4\n[data]\ntrain = {folder}/tokens.bin\nformat = u16\n"
                       f"[checkpoint]\nload = none\n[device]\nbackend = cpu\nthreads = 1\n")
        sets = [w for s in more for w in ("--set", s)]
        plan = json.loads(call(mtrain, "plan", "--config", ini, "--hardware", hardware, "--json", *sets))
        command = [*launch, mtrain]
        short, long = (min(run(command, ini, sets, steps) for _ in range(2)) for steps in (SHORT, LONG))
        seconds = (long - short) / (LONG - SHORT) / ranks
        lines = [json.loads(line) for line in (folder / f"run{ranks}-{i}/metrics.jsonl").read_text().splitlines()]
        bytes_run = [line for line in lines if line["kind"] == "train"][-1]["memory_bytes"]
        bytes_planned, planned = max(m["total"] for m in plan["memory"]), plan["step_seconds"] - plan["time_seconds"]["bubble"]
        errors.append(planned / seconds - 1)
        alike = alike and bytes_planned == bytes_run and abs(plan["memory_limit"] * ranks / machine - 1) < 1e-5
        print(f"{ranks} ranks: {layers} x {hidden}, {micros} x {micro} x {sequence}, {compute} {' '.join(more)}: {seconds:.4f} s, planned "
              f"{planned:.4f} s ({100 * errors[-1]:+.1f}%); {bytes_run} bytes, planned {bytes_planned} of {plan['memory_limit']}", flush=True)
    return alike, [abs(e) for e in errors]


def main():
    mtrain = pathlib.Path(sys.argv[1]).resolve()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokens = array.array("H", (random.Random(1).randrange(1000) for _ in range(200000)))
        (folder / "tokens.bin").write_bytes(tokens.tobytes())
        groups = [([], 1, CONFIGS)]
        if len(sys.argv) > 2 and os.cpu_count() > 1:
            groups.append(([sys.argv[2], "-n", "2"], 2, TWO_RANKS))
        for launch, ranks, configs in groups:
            for _ in range(TRIES):
                alike, errors = compare(mtrain, launch, ranks, folder, configs)
                mean, worst = sum(errors) / len(errors), max(errors)
                print(f"{ranks} ranks: mean {100 * mean:.1f}%, worst {100 * worst:.1f}%")
                near = mean <= BOUNDS[ranks][0] and worst <= BOUNDS[ranks][1]
                if near or not alike:
                    break
            failed = failed or not alike or not near
    sys.exit(failed)


main()
