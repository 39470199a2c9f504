"""The run that gpu-check holds a card against: its settings, its tokens, and the curves that a CPU gave.

Run as a program it records them anew: golden.py MTRAIN, on any CPU, in a quarter of an hour."""
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig  # noqa: E402

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "gpt-124m", "curves.json")

SETTINGS = {
    "run.seed": 7, "run.steps": 6,
    "model.layers": 12, "model.hidden": 768, "model.heads": 12, "model.sequence": 128, "model.vocab": 50257,
    "model.dropout": 0.1, "model.attention_dropout": 0.1,
    "batch.global": 4, "batch.micro": 2, "optimizer.lr": 0.0006, "optimizer.warmup_steps": 2,
}


def write_tokens(prefix, vocab=50257):
    rng = random.Random(3)
    documents = []
    for _ in range(40):
        d = [rng.randrange(vocab)]
        while len(d) < 200:
            d.append((d[-1] * 7 + 3) % vocab if rng.random() < 0.7 else rng.randrange(vocab))
        documents.append(d)
    rig.write_shard(prefix, documents)


def record(r, settings):
    """[{precision: {field: curve}}] of a CPU: of the run itself, and of others that tell what rounding makes of one."""
    recorded = []
    for seed in (settings["run.seed"],) + rig.MORE_SEEDS[:3]:
        curves = {}
        for compute in ("fp32", "fp16", "bf16"):
            lines = r.train("%s-%d" % (compute, seed), dict(settings, **{
                "data.train": r.path("tokens"), "precision.compute": compute, "device.backend": "cpu", "checkpoint.every": 0,
                "checkpoint.load": "none", "run.seed": seed}), timeout=3600)
            curves[compute] = {field: rig.curve(lines, field) for field in ("loss", "grad_norm")}
        recorded.append(curves)
    return recorded


def agrees(lines, recorded, compute, field):
    """(holds, score) of a run with that precision on a card, by the curve rule. FP32 is held to FP16's rounding."""
    pairs = [(curves["fp16" if compute == "fp32" else compute][field], curves["fp32"][field]) for curves in recorded]
    return rig.curve_rule(rig.curve(lines, field), *pairs[0], pairs[1:])


def main():
    r = rig.Rig(sys.argv[1])
    write_tokens(r.path("tokens"))
    os.makedirs(os.path.dirname(GOLDEN), exist_ok=True)
    with open(GOLDEN, "w") as f:
        json.dump(record(r, SETTINGS), f, indent=1)
        f.write("\n")
    r.finish()


if __name__ == "__main__":
    main()
