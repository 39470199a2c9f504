"""The run that gpu-check holds a card against: its settings, its tokens, and the curves that a CPU gave.

Run as a program it records them anew: golden.py MTRAIN, on any CPU, in a few minutes."""
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
    """{precision: {field: curve}} of a CPU."""
    curves = {}
    for compute in ("fp32", "fp16", "bf16"):
        lines = r.train(compute, dict(settings, **{
            "data.train": r.path("tokens"), "precision.compute": compute, "device.backend": "cpu", "checkpoint.every": 0,
            "checkpoint.load": "none"}), timeout=3600)
        curves[compute] = {field: rig.curve(lines, field) for field in ("loss", "grad_norm")}
    return curves


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
