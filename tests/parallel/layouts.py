"""Every layout is the same run: losses and gradient norms of 20 steps agree with one rank, in FP32 to 1e-5 and in FP16
by the curve rule; pipeline depth and schedule with an untied head, and any number of threads, give the same bits, with a sharded optimizer (FP16) and without (FP32); the loss
does not move with the micro-batch; what is computed again gives the same bits in less memory; so does waiting for each
call at once; the quickstart's model learns
the same in FP16, BF16 and FP32.
Usage: layouts.py MTRAIN fp32|fp16|bits|schedules|overlap|micro|recompute|precision"""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig

# (data, tensor, pipeline, stages)
LAYOUTS = [
    (2, 1, 1, None), (1, 2, 1, None), (1, 1, 2, None), (2, 2, 1, None), (1, 2, 2, None), (2, 1, 2, None),
    (2, 2, 2, None), (4, 1, 1, None), (1, 1, 4, "2,1,2,1"), (1, 1, 3, None), (1, 4, 1, None),
]


def settings(r, vocab, **more):
    s = {
        "run.seed": 7, "run.steps": 20,
        "model.layers": 6, "model.hidden": 32, "model.heads": 4, "model.sequence": 16, "model.vocab": vocab,
        "batch.global": 8, "batch.micro": 1,
        "optimizer.lr": 0.003, "optimizer.warmup_steps": 4,
        "data.train": r.path("tokens-%d" % vocab), "checkpoint.every": 0, "checkpoint.load": "none",
        "precision.compute": "fp32", "device.threads": 1,
    }
    s.update({k.replace("__", "."): v for k, v in more.items()})
    return s


# (schedule, data, tensor, pipeline, chunks, stages)
SCHEDULES = [
    ("interleaved", 1, 1, 2, 1, None), ("interleaved", 1, 1, 2, 3, None), ("interleaved", 1, 1, 2, 2, "1,3,1,1"),
    ("interleaved", 1, 1, 2, 2, "0,3,3,0"),
    ("interleaved", 1, 1, 3, 2, None), ("interleaved", 2, 1, 2, 2, None), ("interleaved", 1, 2, 2, 2, None),
    ("zero-bubble", 1, 1, 2, 1, None), ("zero-bubble", 1, 1, 4, 1, "1,2,1,2"), ("zero-bubble", 2, 1, 2, 1, None),
    ("zero-bubble", 1, 2, 2, 1, None),
]


def scheduled(s, case):
    schedule, data, tensor, pipeline, chunks, stages = case
    s, ranks = placed(s, (data, tensor, pipeline, stages))
    return dict(s, **{"parallel.schedule": schedule, "parallel.chunks": chunks}), ranks


def placed(s, layout):
    data, tensor, pipeline, stages = layout
    s = dict(s, **{"parallel.data": data, "parallel.tensor": tensor, "parallel.pipeline": pipeline})
    if stages:
        s["parallel.stages"] = stages
    return s, data * tensor * pipeline


def name(layout):
    return "x".join(map(str, layout[:3])) + ("-uneven" if layout[3] else "")


def variants():
    """(label, vocabulary, settings, layouts): the first on every layout; the others on a few that use every axis, the sweep
    on every one too."""
    few = LAYOUTS if os.environ.get("MTRAIN_SWEEP") else [(1, 2, 2, None), (2, 1, 2, None), (1, 1, 4, "2,1,2,1")]
    yield "257", 257, {}, LAYOUTS
    yield "1009-dropout", 1009, {"model__dropout": 0.1, "model__attention_dropout": 0.1, "batch__micro": 2}, few
    yield "257-untied", 257, {"model__tied": False}, few
    yield "257-whole-optimizer", 257, {"parallel__shard_optimizer": False}, [(2, 2, 1, None), (2, 1, 2, None)]
    yield "257-llama", 257, dict(model__activation="swiglu", model__ffn=48, model__norm="rmsnorm", model__kv_heads=2,
                                 model__bias=False, model__position="rope", model__rope_base=100), few + [(2, 2, 2, None)]
    yield "257-baichuan", 257, dict(model__activation="swiglu", model__ffn=48, model__norm="rmsnorm", model__bias=False,
                                    model__tied=False, model__normalized_head=True, model__position="alibi"), few


def fp32(r):
    for label, vocab, more, layouts in variants():
        s = settings(r, vocab, **more)
        one = r.train("fp32-one-" + label, s)
        for layout in layouts:
            placed_s, ranks = placed(s, layout)
            got = r.train("fp32-%s-%s" % (name(layout), label), placed_s, ranks)
            for field in ("loss", "grad_norm"):
                d = rig.relative(rig.curve(got, field), rig.curve(one, field))
                r.expect(d <= 1e-5, "fp32 %s %s: %s differs by %.1e" % (label, name(layout), field, d))


def fp16(r):
    for label, vocab, own, layouts in variants():
        s = settings(r, vocab, **own)
        exact = r.train("exact-" + label, s)
        half = dict(s, **{"precision.compute": "fp16", "precision.loss_scale_initial": 1024})
        one = r.train("fp16-one-" + label, half)
        more = [(r.train("fp16-one-%s-%d" % (label, seed), dict(half, **{"run.seed": seed})),
                 r.train("exact-%s-%d" % (label, seed), dict(s, **{"run.seed": seed}))) for seed in rig.MORE_SEEDS]
        for layout in layouts:
            placed_s, ranks = placed(half, layout)
            got = r.train("fp16-%s-%s" % (name(layout), label), placed_s, ranks)
            for field in ("loss", "grad_norm"):
                holds, score = rig.curve_rule(rig.curve(got, field), rig.curve(one, field), rig.curve(exact, field),
                                              [(rig.curve(a, field), rig.curve(b, field)) for a, b in more])
                r.expect(holds, "fp16 %s %s: %s at %.2f of its bound" % (label, name(layout), field, score))


def same_bits(r, text, a, b, fields=("loss", "grad_norm", "loss_scale", "lr")):
    for field in fields:
        r.expect([x[field] for x in a] == [x[field] for x in b], "%s: %s has the same bits" % (text, field))


def bits(r):
    for compute in ("fp32", "fp16"):
        s = settings(r, 257, model__tied=False, model__dropout=0.1, precision__compute=compute,
                     parallel__shard_optimizer=compute == "fp16")
        one = r.train("bits-one-" + compute, s)
        for stages in (2, 3, 6):
            placed_s, ranks = placed(s, (1, 1, stages, None))
            same_bits(r, "%s, pipeline %d" % (compute, stages), r.train("bits-%s-pp%d" % (compute, stages), placed_s, ranks), one)
        for threads in (2, 3):
            got = r.train("bits-%s-threads%d" % (compute, threads), dict(s, **{"device.threads": threads}))
            same_bits(r, "%s, %d threads" % (compute, threads), got, one)
        d2, ranks = placed(s, (2, 1, 1, None))
        d2p2, more_ranks = placed(s, (2, 1, 2, None))
        same_bits(r, compute + ", pipeline 2 beside data 2", r.train("bits-d2p2-" + compute, d2p2, more_ranks),
                  r.train("bits-d2-" + compute, d2, ranks))


def schedules(r):
    """Schedules and chunks at fixed data × tensor: an untied head gives one rank's bits (data × tensor alone), and so does
    the loss over validation data; a tied one gives the bits of 1F1B on as many stages, and one rank's curve."""
    for compute in ("fp32", "fp16"):
        s = settings(r, 257, run__steps=6, model__dropout=0.1, precision__compute=compute, optimizer__warmup_steps=2,
                     data__valid=r.path("tokens-257"), eval__every=3, eval__batches=2)
        runs = {}

        def run(key, s, ranks=1):
            """Metric lines, then those of evaluation."""
            if key not in runs:
                lines = r.train("schedules-%s-%s" % (compute, key), s, ranks)
                runs[key] = lines, r.metrics(r.path("runs", "schedules-%s-%s" % (compute, key)), "eval")
            return runs[key]

        for case in SCHEDULES:
            schedule, data, tensor, pipeline, chunks, stages = case
            key = "%s-%dx%dx%d-chunks%d%s" % (schedule, data, tensor, pipeline, chunks, "-" + stages.replace(",", "") if stages else "")
            for tied in (False, True) if compute == "fp32" else (False,):
                head = "tied" if tied else "untied"
                base = dict(s, **{"model.tied": tied})
                depth = pipeline if tied else 1
                want, want_eval = run("1f1b-%dx%dx%d-%s" % (data, tensor, depth, head), *placed(base, (data, tensor, depth, None)))
                got, got_eval = run(key + "-" + head, *scheduled(base, case))
                text = "%s, %s, %s head" % (compute, key, head)
                same_bits(r, text, got, want)
                r.expect(len(got_eval) == 2, text + ": evaluates")
                same_bits(r, text + ", evaluation", got_eval, want_eval, ("loss",))
                if tied:
                    one, _ = run("1f1b-1x1x1-tied", base)
                    for field in ("loss", "grad_norm"):
                        d = rig.relative(rig.curve(got, field), rig.curve(one, field))
                        r.expect(d <= 1e-5, "%s: %s differs by %.1e from one rank" % (text, field, d))


def overlap(r):
    """Micro-batches of enough rows that tensor ranks move them in two or four chunks: one rank's curve; the same bits with
    and without overlap."""
    cases = [
        ("1x2x1", (1, 2, 1, None), 16, {}), ("1x2x1-whole", (1, 2, 1, None), 16, {"parallel.sequence": False}),
        ("1x4x1", (1, 4, 1, None), 8, {}), ("2x1x2", (2, 1, 2, None), 4, {}), ("2x2x2", (2, 2, 2, None), 8, {}),
        ("1x2x2-zero-bubble", (1, 2, 2, None), 8, {"parallel.schedule": "zero-bubble"}),
    ]
    for compute in ("fp32", "fp16"):
        s = settings(r, 257, run__steps=4, model__layers=2, model__sequence=64, batch__global=16, model__dropout=0.1,
                     optimizer__warmup_steps=2, precision__compute=compute)
        one = r.train("overlap-one-" + compute, dict(s, **{"batch.micro": 4}))
        for label, layout, size, more in cases:
            placed_s, ranks = placed(dict(s, **more, **{"batch.micro": size}), layout)
            text = "overlap-%s-%s" % (label, compute)
            got = r.train(text, placed_s, ranks)
            same_bits(r, text, r.train(text + "-off", dict(placed_s, **{"parallel.overlap": False}), ranks), got)
            for field in ("loss", "grad_norm") if compute == "fp32" else ():
                d = rig.relative(rig.curve(got, field), rig.curve(one, field))
                r.expect(d <= 1e-5, "%s: %s differs by %.1e from one rank" % (text, field, d))
    for case in (("zero-bubble", 2, 1, 2, 1, None), ("interleaved", 2, 1, 2, 3, None)):
        s, ranks = scheduled(settings(r, 257, run__steps=4, model__dropout=0.1, data__valid=r.path("tokens-257"),
                                      precision__compute="fp16", eval__every=2, eval__batches=2), case)
        key = "overlap-%s-%dx%dx%d" % case[:4]
        got, at_once = r.train(key, s, ranks), r.train(key + "-off", dict(s, **{"parallel.overlap": False}), ranks)
        same_bits(r, key, at_once, got)
        same_bits(r, key + ", evaluation", r.metrics(r.path("runs", key + "-off"), "eval"), r.metrics(r.path("runs", key), "eval"),
                  ("loss",))


def micro(r):
    for vocab in (257, 1009):
        s = settings(r, vocab, model__dropout=0.1, model__attention_dropout=0.1)
        one = r.train("micro-1-%d" % vocab, s)
        for size in (2, 4, 8):
            got = r.train("micro-%d-%d" % (size, vocab), dict(s, **{"batch.micro": size}))
            for field in ("loss", "grad_norm"):
                d = rig.relative(rig.curve(got, field), rig.curve(one, field))
                r.expect(d <= 1e-5, "micro-batch %d of vocabulary %d: %s differs by %.1e" % (size, vocab, field, d))


def recompute(r):
    """At a fixed layout: none, selective, full, and, where metrics tell what the largest rank takes, auto with room for half of
    what full saves."""
    cases = [("fp32-1x1x1", {}, (1, 1, 1, None))]
    if shutil.which("mpirun"):
        cases += [
            ("fp16-1x2x1", {"precision.compute": "fp16"}, (1, 2, 1, None)),
            ("fp16-1x2x2", {"precision.compute": "fp16", "parallel.sequence": False, "parallel.schedule": "interleaved",
                            "parallel.chunks": 3}, (1, 2, 2, None)),
            ("fp16-1x1x3", {"precision.compute": "fp16", "parallel.schedule": "zero-bubble"}, (1, 1, 3, None)),
        ]
    for label, more, layout in cases:
        s, ranks = placed(dict(settings(r, 257, run__steps=6, model__dropout=0.1, model__attention_dropout=0.1,
                                        optimizer__warmup_steps=2), **more), layout)
        lines, memory = {}, {}
        auto = layout[2] == 1
        for choice in ("none", "selective", "full") + (("auto",) if auto else ()):
            sets = {"parallel.recompute": choice}
            if choice == "auto":
                sets["device.memory"] = most = (memory["none"] + memory["full"]) // 2
            lines[choice] = r.train("recompute-%s-%s" % (label, choice), dict(s, **sets), ranks)
            memory[choice] = lines[choice][0]["memory_bytes"]
            if choice != "none":
                same_bits(r, "%s, recompute %s" % (label, choice), lines[choice], lines["none"])
        r.expect(memory["full"] < memory["selective"] < memory["none"], "%s: each takes less: %s" % (label, memory))
        if not auto:
            continue
        r.expect(memory["full"] < memory["auto"] <= most, "%s: auto takes %d of %d" % (label, memory["auto"], most))
        tight = r.ini("recompute-tight-" + label, dict(s, **{"parallel.recompute": "auto", "device.memory": memory["full"] - 1000}))
        code, _, err, _ = r.run(ranks, ["--config", tight])
        r.expect(code == 2 and "with parallel.recompute = full, and no other choice" in err, "%s: too tight is refused: %s" % (label, err.strip()))


def precision(r):
    """The quickstart's model on this project's own sources: validation losses within 1%. 40 steps; the sweep trains it whole."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    config = os.path.join(root, "configs", "quickstart.ini")
    prefix = r.path("sources")
    code, out, err, _ = r.run(1, ["tokenize", "--tokenizer", "bytes", "--output", prefix, os.path.join(root, "src")])
    r.expect(code == 0, "tokenizes the sources " + err)
    steps = 400 if os.environ.get("MTRAIN_SWEEP") else 40
    losses = {}
    for compute in ("fp32", "fp16", "bf16"):
        run_dir = r.path("runs", "precision-" + compute)
        sets = {"run.dir": run_dir, "run.steps": steps, "data.train": prefix, "precision.compute": compute,
                "parallel.data": 1, "parallel.pipeline": 1, "eval.every": steps, "device.threads": "auto"}
        arguments = ["--config", config]
        for key, value in sets.items():
            arguments += ["--set", "%s=%s" % (key, value)]
        code, out, err, _ = r.run(1, arguments, timeout=1200)
        r.expect(code == 0, "%s trains %s" % (compute, err))
        losses[compute] = float(r.metrics(run_dir, "eval")[-1]["loss"])
        first = float(r.metrics(run_dir)[0]["loss"])
        r.expect(losses[compute] < 0.8 * first, "%s learns: %.4f from %.4f" % (compute, losses[compute], first))
    for compute in ("fp16", "bf16"):
        off = abs(losses[compute] / losses["fp32"] - 1)
        r.expect(off < 0.01, "%s: validation loss %.4f is %.3f%% off FP32's %.4f" % (compute, losses[compute], 100 * off, losses["fp32"]))


def main():
    r = rig.Rig(sys.argv[1])
    for vocab in (257, 1009):
        rig.write_shard(r.path("tokens-%d" % vocab), rig.text_like(vocab, 20000))
    {"fp32": fp32, "fp16": fp16, "bits": bits, "schedules": schedules, "overlap": overlap, "micro": micro, "recompute": recompute, "precision": precision}[sys.argv[2]](r)
    r.finish()


main()
