"""reality.py MTRAIN: a plan against the run: this machine is calibrated, eight configs are planned and run, on one rank.

Memory must agree to the byte. A step's seconds are those of the processor: two runs of different length, their difference by
the steps between them. On one thread that is what an idle machine's clock shows, and what else runs here does not count."""
import array
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile

SHORT, LONG = 2, 8
MEAN, WORST = 0.25, 0.45  # of the seconds: the rates are points, and the ops of a step find other caches than those of a bench

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


def call(*words):
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit code {r.returncode}: {r.stderr}")
    return r.stdout


def run(mtrain, ini, sets, steps):
    """Seconds of the processor that a run takes, of all its threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(mtrain, "--config", ini, *sets, "--set", f"run.steps={steps}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    mtrain = pathlib.Path(sys.argv[1]).resolve()
    failed, errors = 0, []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokens = array.array("H", (random.Random(1).randrange(1000) for _ in range(200000)))
        (folder / "tokens.bin").write_bytes(tokens.tobytes())
        call(mtrain, "calibrate", "--output", folder / "here.ini", "--backend", "cpu", "--threads", 1)
        for i, (layers, hidden, heads, sequence, micro, micros, compute, more) in enumerate(CONFIGS):
            ini = folder / f"c{i}.ini"
            ini.write_text(f"[run]\nsteps = 1\ndir = {folder}/run{i}\n[model]\nlayers = {layers}\nhidden = {hidden}\nheads = {heads}\n"
                           f"sequence = {sequence}\nvocab = 1000\n[batch]\nglobal = {micro * micros}\nmicro = {micro}\n"
                           f"[precision]\ncompute = {compute}\n[optimizer]\nlr = 1e-4\n[data]\ntrain = {folder}/tokens.bin\nformat = u16\n"
                           f"[checkpoint]\nload = none\n[device]\nbackend = cpu\nthreads = 1\n")
            sets = [w for s in more for w in ("--set", s)]
            plan = json.loads(call(mtrain, "plan", "--config", ini, "--hardware", folder / "here.ini", "--json", *sets))
            seconds = (run(mtrain, ini, sets, LONG) - run(mtrain, ini, sets, SHORT)) / (LONG - SHORT)
            lines = [json.loads(line) for line in (folder / f"run{i}/metrics.jsonl").read_text().splitlines()]
            steps = [line for line in lines if line["kind"] == "train"]
            error = plan["step_seconds"] / seconds - 1
            errors.append(abs(error))
            bytes_planned, bytes_run = plan["memory"][0]["total"], steps[-1]["memory_bytes"]
            alike = bytes_planned == bytes_run
            failed += not alike
            print(f"{layers} x {hidden}, {micros} x {micro} x {sequence}, {compute} {' '.join(more)}: {seconds:.4f} s, planned "
                  f"{plan['step_seconds']:.4f} s ({100 * error:+.1f}%); {bytes_run} bytes, planned {bytes_planned}")
    mean, worst = sum(errors) / len(errors), max(errors)
    print(f"mean {100 * mean:.1f}%, worst {100 * worst:.1f}%")
    sys.exit(failed > 0 or mean > MEAN or worst > WORST)


main()
