#!/usr/bin/env python3
"""All techniques compose: a list of layouts in which each possible pair of values of any two settings occurs. Each run
agrees with one rank in losses and gradient norms of 10 steps: FP32 to 1e-5, 16-bit types by the curve rule. At fixed
data × context × tensor ranks, overlap, recompute, chunks and schedule do not move a bit: each run has those of the plain
one (1f1b, nothing computed again, no overlap).
Up to 8 ranks; up to 16 in the sweep. Usage: covering.py MTRAIN PART PARTS: every PARTS-th run from PART on."""
import itertools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig

VALUES = {
    "data": (1, 2, 4), "tensor": (1, 2, 4), "pipeline": (1, 2, 4), "context": (1, 2), "sequence": (False, True),
    "chunks": (1, 2), "schedule": ("1f1b", "interleaved", "zero-bubble"), "shard_optimizer": (False, True), "overlap": (False, True),
    "recompute": ("none", "selective", "full", "auto"), "tied": (False, True), "compute": ("fp16", "bf16", "fp32"),
}
NAMES = list(VALUES)
LEAST = 40


def ranks_of(c):
    return c["data"] * c["tensor"] * c["pipeline"] * c["context"]


def possible(c, ranks):
    """Whether the settings that c has so far can be completed to a run that uses each of them."""
    def value(name, default):
        return c.get(name, default)
    if value("chunks", 1) > 1 and value("schedule", "interleaved") != "interleaved":
        return False
    # Sequence parallelism needs tensor ranks, schedules and chunks need stages.
    tensor = value("tensor", 2 if value("sequence", False) else 1)
    pipeline = value("pipeline", 2 if value("schedule", "1f1b") != "1f1b" or value("chunks", 1) > 1 else 1)
    if value("sequence", False) and tensor == 1:
        return False
    if (value("schedule", "1f1b") != "1f1b" or value("chunks", 1) > 1) and pipeline == 1:
        return False
    return tensor * pipeline * value("data", 1) * value("context", 1) <= ranks


def pairs_of(c):
    return {((a, c[a]), (b, c[b])) for a, b in itertools.combinations(NAMES, 2)}


def covering(ranks):
    """Greedy: each run begins with a pair that has not occurred and takes of each other setting the value that adds most new
    pairs; more runs of the same kind until there are enough."""
    wanted = {((a, x), (b, y)) for a, b in itertools.combinations(NAMES, 2) for x in VALUES[a] for y in VALUES[b]
              if possible({a: x, b: y}, ranks)}
    left, runs = sorted(wanted, key=str), []
    while left or len(runs) < LEAST:
        pool = set(left)
        start = left[0] if left else sorted(wanted, key=str)[len(runs) * 37 % len(wanted)]
        c = dict(start)
        for name in sorted(NAMES, key=lambda n: (n in ("data", "context"), NAMES.index(n))):
            if name in c:
                continue

            def gain(x, name=name):
                if not possible(dict(c, **{name: x}), ranks):
                    return -1
                mine = (name, x)
                return sum((other, mine) in pool or (mine, other) in pool for other in c.items())
            turn = len(runs) % len(VALUES[name])
            c[name] = max(VALUES[name][turn:] + VALUES[name][:turn], key=gain)
        assert possible(c, ranks)
        if c in runs:
            c = dict(c, recompute="full", overlap=not c["overlap"])
        runs.append(c)
        now = pairs_of(c)
        left = [p for p in left if p not in now]
    occurred = set().union(*map(pairs_of, runs))
    assert wanted <= occurred
    return runs


def base(r):
    return {
        "run.seed": 7, "run.steps": 10,
        "model.layers": 8, "model.hidden": 32, "model.heads": 4, "model.sequence": 16, "model.vocab": 257,
        "batch.global": 16, "batch.micro": 2, "model.dropout": 0.1, "optimizer.lr": 0.003, "optimizer.warmup_steps": 4,
        "data.train": r.path("tokens"), "checkpoint.every": 0, "checkpoint.load": "none", "device.threads": 1,
        "precision.loss_scale_initial": 1024,
    }


def settings(r, c):
    s = dict(base(r), **{"model.tied": c["tied"], "precision.compute": c["compute"]})
    for name in NAMES:
        if name not in ("tied", "compute", "sequence"):
            s["parallel." + name] = c[name]
    if c["tensor"] > 1:
        s["parallel.sequence"] = c["sequence"]
    return s


def label(c):
    text = "x".join(str(c[name]) for name in ("data", "context", "tensor", "pipeline"))
    text += " %s-%d %s recompute=%s" % (c["schedule"], c["chunks"], c["compute"], c["recompute"])
    return text + "".join(" " + name for name in ("sequence", "shard_optimizer", "overlap", "tied") if c[name])


def main():
    r = rig.Rig(sys.argv[1])
    ranks = 16 if os.environ.get("MTRAIN_SWEEP") else 8
    part, parts = map(int, sys.argv[2:4])
    rig.write_shard(r.path("tokens"), rig.text_like(257, 20000))
    runs = {}

    def run(c):
        key = str(sorted(c.items()))
        if key not in runs:
            s = settings(r, c)
            if "memory" in c:
                s["device.memory"] = c["memory"]
            if "seed" in c:
                s["run.seed"] = c["seed"]
            lines = r.train("run-%d" % len(runs), s, ranks_of(c), timeout=600)
            runs[key] = {field: rig.curve(lines, field) for field in ("loss", "grad_norm")}, lines[0]["memory_bytes"]
        return runs[key]

    def room(c):
        """Bytes between what rank 0 takes when it keeps all and when it keeps nothing; more where another stage needs more
        even then."""
        _, everything = run(dict(c, recompute="none"))
        _, least = run(dict(c, recompute="full"))
        memory = (everything + least) // 2
        while True:
            path = r.ini("room", dict(settings(r, c), **{
                "run.dir": r.path("runs", "room"), "run.steps": 1, "optimizer.warmup_steps": 0, "device.memory": memory}))
            code, _, err, _ = r.run(ranks_of(c), ["--config", path])
            if code == 0:
                return memory
            if code != 2 or "device.memory" not in err:
                raise SystemExit("%s: %s" % (label(c), err))
            memory += memory // 16

    plain = {"schedule": "1f1b", "chunks": 1, "recompute": "none", "overlap": False}
    alone = dict(plain, data=1, tensor=1, pipeline=1, context=1, shard_optimizer=False, sequence=False)
    for c in covering(ranks)[part::parts]:
        text = label(c)
        want, memory = run(dict(c, **plain))
        if c["recompute"] == "auto":
            c = dict(c, memory=room(c))
        got, memory = run(c)
        for field in ("loss", "grad_norm"):
            r.expect(got[field] == want[field], "%s: %s has the bits of the plain schedule" % (text, field))
            exact, _ = run(dict(alone, tied=c["tied"], compute="fp32"))
            if c["compute"] == "fp32":
                d = rig.relative(got[field], exact[field])
                r.expect(d <= 1e-5, "%s: %s differs by %.1e from one rank" % (text, field, d))
            else:
                one = dict(alone, tied=c["tied"], compute=c["compute"])
                more = [(run(dict(one, seed=seed))[0][field], run(dict(one, compute="fp32", seed=seed))[0][field])
                        for seed in rig.MORE_SEEDS]
                holds, score = rig.curve_rule(got[field], run(one)[0][field], exact[field], more)
                r.expect(holds, "%s: %s at %.2f of its bound" % (text, field, score))
    r.finish()


if __name__ == "__main__":
    main()
