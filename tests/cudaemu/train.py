"""The whole CUDA backend trains on the emulator, alone and on 2×2×2 ranks, and its curves are the CPU's by the curve rule.
Usage: train.py MTRAIN MTRAIN-ON-THE-EMULATOR alone|ranks"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig


def settings(r, **more):
    s = {
        "run.seed": 7, "run.steps": 4,
        "model.layers": 2, "model.hidden": 128, "model.heads": 2, "model.sequence": 36, "model.vocab": 257,
        "model.dropout": 0.1, "model.attention_dropout": 0.1,
        "batch.global": 4, "batch.micro": 1, "optimizer.lr": 0.003, "optimizer.warmup_steps": 2,
        "data.train": r.path("tokens"), "checkpoint.every": 0, "checkpoint.load": "none",
    }
    s.update({k.replace("__", "."): v for k, v in more.items()})
    return s


def check(r, name, got, honest, right):
    for field in ("loss", "grad_norm"):
        holds, score = rig.curve_rule(rig.curve(got, field), rig.curve(honest, field), rig.curve(right, field))
        r.expect(holds, "%s: %s: score %.2f" % (name, field, score))


def main():
    program, emulated, which = sys.argv[1:]
    r = rig.Rig(program)
    emulated = os.path.abspath(emulated)
    rig.write_shard(r.path("tokens"), rig.text_like(257, 4000))
    right = r.train("right", settings(r, precision__compute="fp32"))
    meshes = [{}] if which == "alone" else [{"parallel__tensor": 2, "parallel__pipeline": 2, "parallel__data": 2}]
    ranks = 1 if which == "alone" else 8
    for compute in ("fp16", "bf16") if which == "alone" else ("fp16",):
        r.program = os.path.abspath(program)
        honest = r.train("honest-" + compute, settings(r, precision__compute=compute))
        r.program = emulated
        for mesh in meshes:
            got = r.train("card-" + compute, settings(r, precision__compute=compute, **mesh), ranks)
            check(r, "%s on %d" % (compute, ranks), got, honest, right)
    if which == "alone":
        got = r.train("card-fp32", settings(r, precision__compute="fp32"))
        for field in ("loss", "grad_norm"):
            d = rig.relative(rig.curve(got, field), rig.curve(right, field))
            r.expect(d <= 1e-5, "fp32: %s differs by %.1e" % (field, d))
    r.finish()


main()
