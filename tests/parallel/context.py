"""Context parallelism: sequences shared among ranks are the same run. Losses and gradient norms agree with one rank, in FP32 to
1e-5, beside tensor, sequence, pipeline and data parallelism, schedules, recompute and dropout; in FP16 they are by the curve
rule as near to FP32 as the same mesh without context ranks; at fixed data × context × tensor pipeline depth (untied head),
schedule, recompute and overlap give the same bits; a checkpoint goes on with another number of context ranks; what cannot be
split is refused; ranks that share a sequence compute the same again. Usage: context.py MTRAIN fp32|fp16|bits|resume|fit|inputs"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig

# (data, tensor, context, pipeline)
LAYOUTS = [(1, 1, 2, 1), (1, 1, 4, 1), (1, 2, 2, 1), (2, 1, 2, 1), (1, 1, 2, 2), (2, 2, 2, 1), (1, 2, 2, 2)]
SWEEP = [(1, 1, 8, 1), (2, 1, 2, 2), (1, 1, 4, 2), (1, 2, 4, 1), (2, 2, 2, 2), (1, 1, 4, 4)]


def settings(r, **more):
    s = {
        "run.seed": 7, "run.steps": 12,
        "model.layers": 4, "model.hidden": 32, "model.heads": 4, "model.kv_heads": 2, "model.sequence": 32, "model.vocab": 257,
        "batch.global": 8, "batch.micro": 2, "optimizer.lr": 0.003, "optimizer.warmup_steps": 3,
        "data.train": r.path("tokens"), "data.valid": r.path("tokens"), "eval.every": 6, "eval.batches": 1, "checkpoint.every": 0, "checkpoint.load": "none",
        "precision.compute": "fp32", "device.threads": 1,
    }
    s.update({k.replace("__", "."): v for k, v in more.items()})
    return s


def placed(s, layout):
    data, tensor, context, pipeline = layout
    return dict(s, **{"parallel.data": data, "parallel.tensor": tensor, "parallel.context": context,
                      "parallel.pipeline": pipeline}), data * tensor * context * pipeline


def name(layout):
    return "x".join(map(str, layout))


def cases():
    """(label, settings, layouts)"""
    sweep = bool(os.environ.get("MTRAIN_SWEEP"))
    yield "plain", {}, LAYOUTS + (SWEEP if sweep else [])
    yield "dropout", {"model__dropout": 0.1, "model__attention_dropout": 0.1}, LAYOUTS + SWEEP if sweep else [(1, 1, 4, 1), (1, 2, 2, 2)]
    # Masked targets leave gradients that are nothing but rounding, which Adam would make steps of.
    yield "odd", {"model__sequence": 36, "model__attention_dropout": 0.1, "model__kv_heads": 4, "batch__micro": 1,
                  "parallel__sequence": False, "model__tied": False, "data__end_of_document": 7,
                  "data__mask_end_of_document": True, "optimizer__epsilon": 1e-6}, [(1, 2, 2, 1)]
    yield "rope", {"model__position": "rope", "model__activation": "swiglu", "model__norm": "rmsnorm"}, [(1, 2, 2, 1)]
    yield "full", {"parallel__recompute": "full", "parallel__schedule": "zero-bubble", "model__dropout": 0.1}, [(1, 1, 2, 2)]
    yield "baichuan", {"model__position": "alibi", "model__activation": "swiglu", "model__ffn": 48, "model__norm": "rmsnorm",
                       "model__bias": False, "model__tied": False, "model__normalized_head": True, "model__kv_heads": 4,
                       "parallel__recompute": "full", "parallel__schedule": "zero-bubble"}, [(1, 2, 2, 2)]
    yield "chunks", {"parallel__schedule": "interleaved", "parallel__chunks": 2}, [(1, 1, 2, 2)]


def alone(s):
    """What only counts on more ranks than one is left out of the run on one."""
    return {k: v for k, v in s.items() if k not in ("parallel.schedule", "parallel.chunks")}


def fp32(r):
    for label, more, layouts in cases():
        s = settings(r, **more)
        one = r.train("one-" + label, alone(s))
        one_valid = r.metrics(r.path("runs", "one-" + label), "eval")
        for layout in layouts:
            run = "%s-%s" % (label, name(layout))
            got = r.train(run, *placed(s, layout))
            valid = r.metrics(r.path("runs", run), "eval")
            for field, x, y in (("loss", got, one), ("grad_norm", got, one), ("tokens", got, one), ("loss", valid, one_valid)):
                d = rig.relative(rig.curve(x, field), rig.curve(y, field))
                r.expect(d <= (0 if field == "tokens" else 1e-5), "%s: %s of %s differs by %.1e" % (
                    run, field, "evaluation" if x is valid else "training", d))
            r.expect(len(valid) == 2, run + ": evaluates")


def fp16(r):
    """What rounding is honest is told by the same mesh without context ranks, and by one rank with other seeds. Schedules and recompute change no bits (bits)."""
    for label, own, layouts in cases():
        if label in ("rope", "full", "chunks"):
            continue
        s = settings(r, run__steps=20, **own)
        exact = r.train("exact-" + label, alone(s))
        half = dict(s, **{"precision.compute": "fp16", "precision.loss_scale_initial": 1024})
        more = [(r.train("one-%s-%d" % (label, seed), alone(dict(half, **{"run.seed": seed}))),
                 r.train("exact-%s-%d" % (label, seed), alone(dict(s, **{"run.seed": seed})))) for seed in rig.MORE_SEEDS]
        honest = {}
        for layout in layouts if label != "plain" else layouts[1:4]:
            data, tensor, context, pipeline = layout
            without = (data, tensor, 1, pipeline)
            if without not in honest:
                honest[without] = r.train("%s-%s" % (label, name(without)), *placed(half, without))
            got = r.train("%s-%s" % (label, name(layout)), *placed(half, layout))
            for field in ("loss", "grad_norm"):
                holds, score = rig.curve_rule(rig.curve(got, field), rig.curve(honest[without], field), rig.curve(exact, field),
                                              [(rig.curve(a, field), rig.curve(b, field)) for a, b in more])
                r.expect(holds, "%s %s: %s at %.2f of its bound" % (label, name(layout), field, score))


def bits(r):
    for compute in ("fp32", "fp16"):
        s = settings(r, model__tied=False, model__dropout=0.1, model__attention_dropout=0.1, precision__compute=compute,
                     run__steps=4)
        for layout in ((1, 1, 2, 1), (1, 2, 2, 1)) if compute == "fp16" else ((1, 1, 2, 1),):
            first = r.train("first-%s-%s" % (compute, name(layout)), *placed(s, layout))
            deeper = layout[:3] + (2,)
            others = [
                ("overlap off", layout, {"parallel.overlap": False}), ("2 threads", layout, {"device.threads": 2}),
                ("recompute selective", layout, {"parallel.recompute": "selective"}),
                ("recompute full", layout, {"parallel.recompute": "full"}), ("pipeline 2", deeper, {}),
                ("zero-bubble, recompute full", deeper, {"parallel.schedule": "zero-bubble", "parallel.recompute": "full"}),
                ("interleaved", deeper, {"parallel.schedule": "interleaved", "parallel.chunks": 2}),
            ]
            few = layout[1] > 1 or compute == "fp32"
            for what, mesh, more in others[:1] + others[3:5] if few else others:
                got = r.train("%s-%s-%s" % (what.replace(" ", "-"), compute, name(layout)), *placed(dict(s, **more), mesh))
                for field in ("loss", "grad_norm", "loss_scale"):
                    r.expect([x[field] for x in got] == [x[field] for x in first],
                             "%s, %s, %s: %s has the same bits" % (compute, name(layout), what, field))


def resume(r):
    """12 steps, saved after 6 and gone on with on another mesh, against 12 steps on one rank."""
    s = settings(r, model__dropout=0.1, optimizer__decay_steps=12, checkpoint__every=6, checkpoint__load="auto")
    one = r.train("straight", s)
    for before, after in (((1, 1, 4, 1), (1, 2, 2, 1)), ((1, 1, 1, 1), (1, 1, 2, 2)), ((2, 1, 2, 1), (1, 1, 1, 1))):
        text = "%s, then %s" % (name(before), name(after))
        folder = r.path("runs", "resumed-%s-%s" % (name(before), name(after)))
        first, ranks = placed(dict(s, **{"run.dir": folder, "run.steps": 6}), before)
        r.train("before", first, ranks)
        second, ranks = placed(dict(s, **{"run.dir": folder}), after)
        got = r.train("after", second, ranks)
        r.expect([x["step"] for x in got] == list(range(1, 13)), text + ": one line a step")
        for field in ("loss", "grad_norm"):
            d = rig.relative(rig.curve(got, field), rig.curve(one, field))
            r.expect(d <= 1e-5, "%s: %s differs by %.1e from one rank" % (text, field, d))


def fit(r):
    """recompute = auto on two ranks of which one has more threads, and so less room for activations beside the ops' workspace: what
    it must compute again, attention's output too, the other one computes again as well, since keys go round both."""
    # Few rows and wide layers, whose products take long to do again; and many, so that a thread's workspace is less than selective saves.
    s = settings(r, run__steps=2, optimizer__warmup_steps=1, model__layers=8, model__hidden=256, model__heads=8, model__kv_heads=1,
                 batch__micro=1, eval__every=0, precision__compute="fp16", parallel__context=2, launch__step_timeout=30)

    def run(recompute, threads, **more):
        name = "-".join(map(str, [recompute] + threads))
        ranks = [["--set", "device.threads=%d" % n] for n in threads]
        return r.train(name, dict(s, **{"parallel.recompute": recompute}, **more), ranks)

    want = run("none", [1, 2])
    few, many = want[0]["memory_bytes"], run("none", [2, 1])[0]["memory_bytes"]
    selective = run("selective", [2, 1])[0]["memory_bytes"]
    r.expect(few < many, "a thread takes workspace: %d and %d bytes" % (few, many))
    # The rank of two threads must save more than selective does, the other one by itself less.
    got = run("auto", [1, 2], **{"device.memory": selective - (many - few) // 2})
    r.expect(got[0]["memory_bytes"] < selective - (many - few), "the rank of one thread computes again what the other one must")
    for field in ("loss", "grad_norm"):
        r.expect([x[field] for x in got] == [x[field] for x in want], "auto: %s has the same bits" % field)


def inputs(r):
    for what, words, more in (
            ("a sequence that does not divide", ["model.sequence = 30", "2*parallel.context = 4", "28 or 32"],
             {"model.sequence": 30, "parallel.context": 2}),
            ("a world that does not fit", ["context = 2", "needs a multiple of 2 ranks", "mpirun -n 2"], {"parallel.context": 2}),
            ("rows that tensor ranks cannot share", ["18 tokens", "on a context rank", "parallel.tensor = 4"],
             {"model.sequence": 36, "parallel.context": 2, "parallel.tensor": 4, "model.kv_heads": 4, "parallel.sequence": True,
              "batch.micro": 1})):
        code, _, err, _ = r.run(1, ["--config", r.ini("bad", dict(settings(r), **more))])
        lines = [line for line in err.splitlines() if line.startswith("mtrain: ")]
        r.expect(code == 2 and len(lines) == 1 and all(w in lines[0] for w in words), "%s: exit %d: %s" % (what, code, lines))


def main():
    r = rig.Rig(sys.argv[1])
    rig.write_shard(r.path("tokens"), rig.text_like(257, 4000))
    {"fp32": fp32, "fp16": fp16, "bits": bits, "resume": resume, "fit": fit, "inputs": inputs}[sys.argv[2]](r)
    r.finish()


main()
