"""An evaluation of more micro-batches than one list of a schedule has is that of fewer, larger ones; so is one of more global batches
than can be counted.
Usage: evaluation.py MTRAIN"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig

WINDOWS, LIST = 64 * 1032, 65536


def main():
    r = rig.Rig(sys.argv[1])
    rig.write_shard(r.path("tokens"), rig.text_like(16, 2 * WINDOWS + 1))
    losses = {}
    for name, micro, batches in (("large", 64, WINDOWS // 64), ("many", 1, WINDOWS // 64), ("all", 1, 1 << 62)):
        folder = r.path("runs", name)
        r.train(name, {"run.seed": 7, "run.steps": 1, "run.dir": folder, "model.layers": 1, "model.hidden": 8, "model.heads": 1,
                       "model.sequence": 2, "model.vocab": 16, "batch.global": 64, "batch.micro": micro, "optimizer.lr": 0.001,
                       "optimizer.warmup_steps": 0, "precision.compute": "fp32", "data.train": r.path("tokens"),
                       "data.valid": r.path("tokens"), "eval.every": 1, "eval.batches": batches, "checkpoint.every": 0,
                       "checkpoint.load": "none", "device.threads": 1, "device.backend": "cpu"})
        losses[name] = [float(line["loss"]) for line in r.metrics(folder, "eval")]
    r.expect(len(losses["large"]) == 1 and WINDOWS > LIST, "evaluates: %s" % losses)
    for name in ("many", "all"):
        d = rig.relative(losses[name], losses["large"])
        r.expect(d <= 1e-5, "%s: differs by %.1e" % (name, d))
    r.finish()


main()
