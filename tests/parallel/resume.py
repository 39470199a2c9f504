"""A run that is killed loses nothing: n steps, kill -9, the rest = all steps straight, in the same bits on the same layout, and
within the rounding of the layout on another one. A signal saves and ends with 75. Usage: resume.py MTRAIN SUITE

A run that is to be killed has no end of its own, so that it cannot come first however fast the machine is; how far it is
resumed follows from where it was killed, and a run that nobody disturbs goes as far."""
import glob
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig

STEPS, EVERY, ENDLESS = 24, 6, 1000000


def settings(r, name, **more):
    s = {
        "run.seed": 5, "run.steps": STEPS, "run.dir": r.path("runs", name),
        "model.layers": 4, "model.hidden": 32, "model.heads": 4, "model.sequence": 16, "model.vocab": 257,
        "model.dropout": 0.1, "batch.global": 8, "batch.micro": 1,
        "optimizer.lr": 0.003, "optimizer.warmup_steps": 4, "optimizer.decay_steps": 60, "precision.loss_scale_window": 5,
        "data.train": "3:%s, 1:%s" % (r.path("tokens"), r.path("more")), "checkpoint.every": EVERY,
        "device.threads": 1,
    }
    s.update({k.replace("__", "."): v for k, v in more.items()})
    return s


def layout(s, data, tensor, pipeline):
    return dict(s, **{"parallel.data": data, "parallel.tensor": tensor, "parallel.pipeline": pipeline}), data * tensor * pipeline


def newest(run_dir):
    return sorted(glob.glob(os.path.join(run_dir, "checkpoints", "step-*")))[-1:]


def wait_for_step(run_dir, step, seconds=120):
    """Until metrics show that `step` attempts are done."""
    end = time.time() + seconds
    path = os.path.join(run_dir, "metrics.jsonl")
    while time.time() < end:
        try:
            with open(path) as f:
                lines = [l for l in f if l.endswith("\n") and '"kind":"train"' in l.replace(" ", "")]
            if lines and json.loads(lines[-1])["step"] >= step:
                return True
        except (FileNotFoundError, json.JSONDecodeError):
            pass
        time.sleep(0.005)
    return False


FIELDS = ("step", "samples", "tokens", "loss", "grad_norm", "lr", "loss_scale", "skipped")


def same(a, b):
    return [[x[f] for f in FIELDS] for x in a] == [[x[f] for f in FIELDS] for x in b]


def rank_pids(config):
    """Processes of the job with this config that are mtrain itself."""
    pids = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as f:
                text = f.read()
            pid, rest = int(text.split(" ", 1)[0]), text.rsplit(")", 1)[1].split()
            with open("/proc/%d/cmdline" % pid) as f:
                command = f.read().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if os.path.basename(command[0]) == "mtrain" and config in command:
            pids.append(pid)
    return sorted(pids)


def compare(r, name, s, ranks, straight, exact):
    """Resumes the run s ten steps beyond what it has done, and compares with one that was not disturbed."""
    steps = len(r.metrics(s["run.dir"])) + 10
    got = r.train(name, dict(s, **{"run.steps": steps}), ranks)
    whole, whole_ranks = straight
    whole = r.train(name + "-straight", dict(whole, **{"run.steps": steps, "run.dir": r.path("runs", name + "-straight")}),
                    whole_ranks)
    r.expect([x["step"] for x in got] == list(range(1, steps + 1)), name + ": one line a step after the resume")
    if exact:
        r.expect(same(got, whole), name + ": the same bits as a run that was not disturbed")
    else:
        for field in ("loss", "grad_norm"):
            d = rig.relative(rig.curve(got, field), rig.curve(whole, field))
            r.expect(d < 1e-5, "%s: %s differs by %.1e from a run on one layout" % (name, field, d))
    events = [e["event"] for e in r.metrics(s["run.dir"], "event")]
    r.expect("resume" in events, name + ": the resume is an event")
    ledger = [e for e in r.metrics(s["run.dir"], "event") if e["event"] == "ledger"][-1]
    r.expect(sorted(sum((one["ranks"] for one in ledger["ranks"]), [])) == list(range(ranks)), name + ": a ledger of every rank")


def kill_and_resume(r, name, compute, place, back, exact, then=None, **more):
    """Kills a run after a checkpoint, resumes it on the layout `back`, with the settings `then` in place of its own."""
    straight = s, ranks = layout(settings(r, name, precision__compute=compute, run__steps=ENDLESS, **more), *place)
    path = r.ini(name, s)
    p = r.start(ranks, ["--config", path])
    r.expect(wait_for_step(s["run.dir"], EVERY + 2), name + ": trains past a checkpoint")
    for pid in rank_pids(path):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    p.communicate(timeout=60)
    r.expect(p.returncode != 0, name + ": a killed job does not end well")
    compare(r, name, *layout(dict(s, **(then or {})), *back), straight, exact)


def inspected(r, path):
    """inspect names every tensor of a sharded checkpoint, whole and valid; some of them lie in several files."""
    code, out, err, _ = r.run(1, ["inspect", path, "--json"])
    r.expect(code == 0, "inspect reads %s %s" % (path, err))
    seen = json.loads(out)
    names = [t["name"] for t in seen["tensors"]]
    r.expect(len(names) == len(set(names)) and len(names) == 3 * (2 + 4 * 12 + 2), "inspect names %d tensors" % len(names))
    r.expect(len(seen["files"]) == 4 and all(f["valid"] for f in seen["files"]), "each rank wrote a file")
    r.expect(max(t["pieces"] for t in seen["tensors"]) > 1, "tensors are in pieces")


def kills(r):
    kill_and_resume(r, "killed-fp16", "fp16", (2, 1, 2), (2, 1, 2), True)
    kill_and_resume(r, "killed-fp32", "fp32", (2, 1, 2), (2, 1, 2), True)


def moves(r):
    """Killed on one mesh, resumed on another, or with another way to keep the optimizer's state."""
    kill_and_resume(r, "moved-fp32", "fp32", (2, 1, 2), (1, 2, 2), False)
    kill_and_resume(r, "alone-fp32", "fp32", (2, 1, 2), (1, 1, 1), False)
    kill_and_resume(r, "sharded-then-whole", "fp32", (2, 2, 1), (2, 1, 2), False, {"parallel.shard_optimizer": False})
    kill_and_resume(r, "whole-then-sharded", "fp32", (2, 1, 1), (4, 1, 1), False, {"parallel.shard_optimizer": True},
                    parallel__shard_optimizer=False)
    inspected(r, newest(r.path("runs", "whole-then-sharded"))[0])
    kill_and_resume(r, "llama-fp32", "fp32", (1, 2, 1), (1, 1, 2), False, model__activation="swiglu", model__norm="rmsnorm",
                    model__position="rope")


def signals(r):
    """SIGUSR1 to mpirun, SIGTERM or SIGINT to one rank: saved, 75, and resumed to the same bits."""
    for name, number, to_rank in (("usr1", signal.SIGUSR1, False), ("term", signal.SIGTERM, True), ("int", signal.SIGINT, True)):
        straight = s, ranks = layout(settings(r, name, checkpoint__every=0, run__steps=ENDLESS), 2, 1, 2)
        path = r.ini(name, s)
        p = r.start(ranks, ["--config", path])
        r.expect(wait_for_step(s["run.dir"], 3), name + ": trains")
        if to_rank:
            os.kill(rank_pids(path)[1], number)
        else:
            p.send_signal(number)
        out, err = p.communicate(timeout=60)
        r.expect(p.returncode == 75, "%s: exit code %d, should be 75" % (name, p.returncode))
        r.expect("mtrain: " not in err, name + ": nobody speaks of an error")
        r.expect(len(newest(s["run.dir"])) == 1, name + ": a checkpoint was saved")
        compare(r, name, s, ranks, straight, True)


def losses(r):
    """A dead rank, first or not, ends the job within 10 seconds, with one cause and not 0."""
    for name, victim in (("rank-0", 0), ("rank-2", 2)):
        s, ranks = layout(settings(r, "dead-" + name, run__steps=ENDLESS, checkpoint__every=0), 2, 1, 2)
        path = r.ini("dead-" + name, s)
        p = r.start(ranks, ["--config", path])
        r.expect(wait_for_step(s["run.dir"], 3), name + ": trains")
        begin = time.time()
        os.kill(rank_pids(path)[victim], signal.SIGKILL)
        out, err = p.communicate(timeout=60)
        seconds = time.time() - begin
        causes = [line for line in err.splitlines() if line.startswith("mtrain: ") and "warning" not in line]
        r.expect(seconds < 10, "%s: the job ended after %.1f s" % (name, seconds))
        r.expect(p.returncode != 0, "%s: exit code %d" % (name, p.returncode))
        r.expect(len(causes) == 1, "%s: one cause: %s" % (name, causes))
        r.expect(not rank_pids(path), name + ": nobody is left")


def limits(r):
    """max_minutes saves and ends with 75 before the limit, and not long before."""
    s = settings(r, "limit", run__steps=ENDLESS, run__max_minutes=0.2, checkpoint__every=0)
    begin = time.time()
    r.train("limit", s, 1, expect=75)
    seconds = time.time() - begin
    r.expect(6 < seconds < 15, "max_minutes: ended after %.1f of 12 s" % seconds)
    r.expect(len(newest(s["run.dir"])) == 1, "max_minutes: a checkpoint was saved")


def rotation(r):
    """keep_last, keep_every, a flipped byte falls back, an explicit broken checkpoint is refused."""
    s = settings(r, "rotation", checkpoint__every=2, checkpoint__keep_last=2, checkpoint__keep_every=8)
    r.train("rotation", s)
    kept = [os.path.basename(p) for p in sorted(glob.glob(os.path.join(s["run.dir"], "checkpoints", "*")))]
    r.expect(kept == ["step-%08d" % n for n in (8, 16, 22, 24)], "keep_last 2 and keep_every 8 keep " + " ".join(kept))
    last = newest(s["run.dir"])[0]
    target = sorted(glob.glob(os.path.join(last, "*.safetensors")))[0]
    with open(target, "r+b") as f:
        f.seek(-7, 2)
        byte = f.read(1)
        f.seek(-7, 2)
        f.write(bytes([byte[0] ^ 1]))
    path = r.ini("rotation", dict(s, **{"run.steps": STEPS + 2, "optimizer.decay_steps": STEPS}))
    code, out, err, _ = r.run(1, ["--config", path])
    r.expect(code == 0 and os.path.basename(last) in err, "a flipped byte is named and the one before is loaded\n" + err)
    lines = r.metrics(s["run.dir"])
    r.expect([x["step"] for x in lines] == list(range(1, STEPS + 3)), "the steps after it are done again")
    broken = r.ini("explicit", dict(s, **{"run.dir": r.path("runs", "explicit"), "checkpoint.load": r.path("nowhere")}))
    code, out, err, _ = r.run(1, ["--config", broken])
    r.expect(code == 4 and "nowhere" in err and err.count("\n") == 1, "a checkpoint that is not there: exit 4, one line\n" + err)


def main():
    r = rig.Rig(sys.argv[1])
    rig.write_shard(r.path("tokens"), rig.text_like(257, 6000))
    rig.write_shard(r.path("more"), rig.text_like(257, 3000, seed=2))
    {"kills": kills, "moves": moves, "signals": signals, "losses": losses, "limits": limits, "rotation": rotation}[sys.argv[2]](r)
    r.finish()


main()
