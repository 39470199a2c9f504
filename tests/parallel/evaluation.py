"""An evaluation in small micro-batches is that in large ones, and one of more global batches than can be counted that of all; a long
one ends with the run, saved, when a stop is asked for by a signal or by the time limit.
Usage: evaluation.py MTRAIN"""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig

WINDOWS = 64 * 1032 - 5


def settings(r, name, micro, batches, **more):
    s = {"run.seed": 7, "run.steps": 1, "run.dir": r.path("runs", name), "model.layers": 1, "model.hidden": 8, "model.heads": 1,
         "model.sequence": 2, "model.vocab": 16, "batch.global": 64, "batch.micro": micro, "optimizer.lr": 0.001,
         "optimizer.warmup_steps": 0, "precision.compute": "fp32", "data.train": r.path("tokens"),
         "data.valid": r.path("tokens"), "eval.every": 1, "eval.batches": batches, "checkpoint.every": 0,
         "checkpoint.load": "none", "device.threads": 1, "device.backend": "cpu"}
    s.update({key.replace("__", "."): value for key, value in more.items()})
    return s


def given_up(r, name, ask, **more):
    """A run whose evaluation takes minutes, and that ASK stops."""
    s = settings(r, name, 1, 1 << 62, run__steps=3, model__layers=8, model__hidden=256, **more)
    p = r.start(1, ["--config", r.ini(name, s)])
    path, begin = os.path.join(s["run.dir"], "metrics.jsonl"), time.time()
    while time.time() < begin + 60 and not (os.path.exists(path) and r.metrics(s["run.dir"])):
        time.sleep(0.1)
    begin = time.time()
    ask(p)
    out, err = p.communicate(timeout=240)
    seconds = time.time() - begin
    r.expect(p.returncode == 75 and seconds < 30, "%s: exit code %d after %.1f s %s" % (name, p.returncode, seconds, err[-300:]))
    r.expect("evaluation is given up" in out + err and not r.metrics(s["run.dir"], "eval"), "%s: says so, and has no loss" % name)
    r.expect(os.listdir(os.path.join(s["run.dir"], "checkpoints")) == ["step-%08d" % 1], "%s: saved" % name)


def main():
    r = rig.Rig(sys.argv[1])
    rig.write_shard(r.path("tokens"), rig.text_like(16, 2 * WINDOWS + 1))
    losses = {}
    for name, micro, batches in (("large", 64, WINDOWS // 64 + 1), ("many", 1, WINDOWS // 64 + 1), ("all", 1, 1 << 62)):
        s = settings(r, name, micro, batches)
        r.train(name, s)
        losses[name] = [float(line["loss"]) for line in r.metrics(s["run.dir"], "eval")]
    r.expect(len(losses["large"]) == 1, "evaluates: %s" % losses)
    for name in ("many", "all"):
        d = rig.relative(losses[name], losses["large"])
        r.expect(d <= 1e-5, "%s: differs by %.1e" % (name, d))
    given_up(r, "signal", lambda p: p.send_signal(signal.SIGTERM))
    given_up(r, "limit", lambda p: None, run__max_minutes=0.1)
    r.finish()


main()
