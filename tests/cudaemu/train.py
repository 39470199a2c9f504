"""The whole CUDA backend trains on the emulator, alone, on 2×2×2 ranks and on two that share sequences; its curves are the
CPU's by the curve rule, without timing, which would draw other bits each time. With "tuned": algorithms that are chosen by timing,
which the emulator makes up anew each time, are the same on all ranks that share a product, are kept in checkpoints, and are those
of the steps behind a resume. With "graphs": the same bits with device.graphs as without, on one rank, on four that share layers
or data, on two that share sequences or have two chunks of the model each; the plan has the run's own memory. With "attention": two ranks take another library's attention together or not at all.
Usage: train.py MTRAIN MTRAIN-ON-THE-EMULATOR alone|ranks|context|tuned|attention|graphs|graphs-tensor|graphs-data|graphs-context|graphs-chunks"""
import glob
import json
import os
import re
import shutil
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


def check(r, name, got, pairs):
    """PAIRS: (a run in the format of GOT, one in FP32) on the CPU; the first with the seed of GOT."""
    for field in ("loss", "grad_norm"):
        curves = [(rig.curve(honest, field), rig.curve(right, field)) for honest, right in pairs]
        holds, score = rig.curve_rule(rig.curve(got, field), *curves[0], curves[1:])
        r.expect(holds, "%s: %s: score %.2f" % (name, field, score))


def tuned(r, emulated):
    """Runs that time, resumes of one of them, and a run that does not time."""
    r.program = emulated
    base = settings(r, run__steps=4, checkpoint__every=2, checkpoint__load="auto", optimizer__decay_steps=4)

    def manifest(name, step):
        with open(r.path("runs", name, "checkpoints", "step-%08d" % step, "manifest.json")) as f:
            return json.load(f)

    straight = r.train("timed", base)
    tuning = manifest("timed", 2)["tuning"]
    r.expect(len(tuning) > 10 and all(k.startswith("gemm ") for k in tuning), "%d choices in the checkpoint" % len(tuning))
    r.expect(len({v.split()[-1] for v in tuning.values()}) > 1, "more than one algorithm was chosen")
    for attempt in range(2):
        shutil.rmtree(r.path("runs", "timed", "checkpoints", "step-00000004"))
        again = r.train("timed", base)
        for field in ("loss", "grad_norm"):
            r.expect(rig.curve(again, field) == rig.curve(straight, field), "resumed: the same bits of " + field)
        r.expect(manifest("timed", 4)["tuning"] == tuning, "the choices stay")
    first = r.train("untimed", dict(base, **{"device.tune": False}))
    values = {v.split()[-1] for v in manifest("untimed", 4)["tuning"].values()}
    r.expect(len(values) == 1, "device.tune = false: the library's first offer everywhere")
    r.expect(rig.curve(first, "grad_norm") != rig.curve(straight, "grad_norm"), "other algorithms, other bits")


def planned(r, path, events):
    """The plan for a card without cuDNN, which the emulated one is, has the run's own memory."""
    run = [e for e in events if e["event"] == "ledger"][0]["ranks"][0]["arenas"]
    code, out, err, _ = r.run(1, ["plan", "--config", path, "--hardware", "a100-80gb", "--json"])
    r.expect(code == 0, "plan: exit code %d %s" % (code, err[-500:]))
    plan = json.loads(out)["memory"][0] if code == 0 else {}
    r.expect(run["workspace"] >= 64 << 20 and all(plan.get(k) == v for k, v in run.items()), "planned %s, taken %s" % (plan, run))


def graphs(r, emulated, which):
    """With and without dropout, and each technique that moves slots and memory about, in one of the runs. Algorithms of products are not timed."""
    r.program = emulated
    base = settings(r, run__steps=3, model__hidden=64, model__sequence=32, device__tune=False)
    ranks, more = {
        "graphs": (1, {"parallel.recompute": "selective"}),
        "graphs-tensor": (4, {"parallel.tensor": 2, "parallel.pipeline": 2, "parallel.sequence": "true"}),
        "graphs-data": (4, {"parallel.data": 2, "parallel.pipeline": 2, "parallel.schedule": "zero-bubble",
                            "batch.global": 8, "model.dropout": 0, "model.attention_dropout": 0}),
        "graphs-context": (2, {"parallel.context": 2, "model.layers": 1}),
        "graphs-chunks": (2, {"parallel.pipeline": 2, "parallel.chunks": 2, "parallel.schedule": "interleaved", "model.layers": 4,
                              "model.hidden": 32, "model.sequence": 16}),
    }[which]
    base.update(more)
    runs = {}
    for on in (False, True):
        folder = r.path("runs", str(on))
        path = r.ini(str(on), dict(base, **{"run.dir": folder, "device.graphs": on}))
        code, out, err, _ = r.run(ranks, ["--config", path])
        r.expect(code == 0, "graphs %s on %d: exit code %d %s" % (on, ranks, code, err[-500:]))
        lines, weights = r.metrics(folder), {}
        for name in glob.glob(os.path.join(folder, "checkpoints", "*", "*.safetensors")):
            with open(name, "rb") as f:
                weights[os.path.basename(name)] = f.read()
        runs[on] = [rig.curve(lines, "loss"), rig.curve(lines, "grad_norm"), weights]
        r.expect(len(lines) == 3 and weights, "%d steps, %d files of weights" % (len(lines), len(weights)))
        did = re.search(r"device.graphs: (\d+) graphs .*; (\d+) of (\d+) ops by (\d+) launches", out)
        r.expect(bool(did) == on, did.group(0) if did else "no graphs")
        if did:
            made, launched, ops, launches = map(int, did.groups())
            r.expect(0 < made <= launches and (ranks > 1 or launched > ops / 4), "graphs are launched")
    if which == "graphs":
        planned(r, path, r.metrics(folder, "event"))
    for i, what in enumerate(("loss", "gradient norm", "weights and moments")):
        r.expect(runs[False][i] == runs[True][i], "the same bits: " + what)


def attention(r, emulated):
    """Another library's attention on two ranks: all take it, in graphs, or, where one cannot have the plan that was agreed on, none does."""
    r.program = emulated
    base = settings(r, run__steps=2, model__hidden=64, model__sequence=32, model__attention_dropout=0, parallel__data=2, device__tune=False)
    trying, runs = 4, {}  # calls: both ways, twice
    for refuser in (None, -1, 1):
        if refuser is not None:
            os.environ["CUDAEMU_ATTENTION"] = str(refuser)
        name = "other-%s" % refuser
        folder = r.path("runs", name)
        code, out, err, _ = r.run(2, ["--config", r.ini(name, dict(base, **{"run.dir": folder, "device.graphs": refuser == -1}))])
        r.expect(code == 0, "attention, refused by %s: exit code %d %s" % (refuser, code, err[-500:]))
        runs[refuser] = [rig.curve(r.metrics(folder), field) for field in ("loss", "grad_norm")]
        calls = re.search(r"another attention was called (\d+) times", out)
        said = [line for line in (out + err).splitlines() if "rank 1 has no plan: it was told so" in line]
        with open(glob.glob(os.path.join(folder, "checkpoints", "*", "manifest.json"))[0]) as f:
            values = {k: v for k, v in json.load(f)["tuning"].items() if "attention" in k}
        r.expect((calls is not None) == (refuser is not None), "there is another one: %s" % refuser)
        if refuser is not None:
            r.expect((int(calls.group(1)) > trying) == (refuser == -1), "called %s times" % calls.group(1))
        r.expect(len(said) == (refuser == 1), "said: %s" % said)
        r.expect(("another 1 plan 32" in values.values()) == (refuser == -1), "kept: %s" % values)
        r.expect(runs[refuser] == runs[None], "the same bits")


def products(r, emulated):
    """Where a rank cannot have an algorithm of products that was agreed on, it says so, once; where all can, nothing is said."""
    r.program = emulated
    base = settings(r, run__steps=1, model__hidden=64, model__sequence=32, parallel__data=2, optimizer__warmup_steps=0)
    for refuser in ("none", "1"):
        path = r.ini("refuses-" + refuser, dict(base, **{"run.dir": r.path("runs", refuser)}))
        code, out, err, _ = r.run(2, ["--config", path], env={"CUDAEMU_GEMM_REFUSES": refuser})
        said = [line for line in (out + err).splitlines() if "rank 1 cannot have an algorithm of matrix products" in line]
        r.expect(code == 0 and len(said) == (refuser == "1"), "refused by %s: exit code %d, said %s %s" % (refuser, code, said, err[-300:]))


def waits(r, emulated):
    """Whatever queue of the card comes first, a run has the same bits, and those of one rank on the CPU up to rounding: nothing
    depends on an order that no wait makes. Each axis by itself, over MPI on one card, and over NCCL where there are two."""
    base = settings(r, run__steps=2, model__hidden=32, model__heads=4, model__kv_heads=2, model__sequence=8, model__dropout=0,
                    model__attention_dropout=0, optimizer__epsilon=1e-5, optimizer__warmup_steps=0, precision__compute="fp32", device__tune=False)
    layouts = {
        "tensor": {"parallel.tensor": 2},
        "pipeline": {"parallel.pipeline": 2},
        "chunks": {"parallel.pipeline": 2, "parallel.schedule": "interleaved", "parallel.chunks": 2, "model.layers": 4},
        "zero-bubble": {"parallel.pipeline": 2, "parallel.schedule": "zero-bubble", "parallel.recompute": "full"},
        "data": {"parallel.data": 2},
        "context": {"parallel.context": 2},
    }
    program = r.program
    for name, layout in layouts.items():
        s = dict(base, **layout)
        r.program = program
        alone = r.train("alone-" + name, dict(base, **{key: value for key, value in layout.items() if key.startswith("model.")}))
        r.program = emulated
        for cards in (1, 2) if "CUDAEMU_CARDS" in os.environ else (1,):
            first, last = (r.train("%s-%d-%d" % (name, cards, order), s, 2, env={"CUDAEMU_CARDS": str(cards), "CUDAEMU_STREAMS": str(order)})
                           for order in (1, -1))
            for field in ("loss", "grad_norm"):
                got, d = rig.curve(first, field), rig.relative(rig.curve(first, field), rig.curve(alone, field))
                r.expect(d <= 1e-5, "%s on %d cards: %s differs by %.1e from one rank" % (name, cards, field, d))
                r.expect(rig.curve(last, field) == got, "%s on %d cards: %s has the same bits whatever queue comes first" % (name, cards, field))


def main():
    program, emulated, which = sys.argv[1:]
    r = rig.Rig(program)
    emulated = os.path.abspath(emulated)
    rig.write_shard(r.path("tokens"), rig.text_like(257, 4000))
    if which == "tuned":
        tuned(r, emulated)
        r.finish()
    if which == "attention":
        attention(r, emulated)
        products(r, emulated)
        r.finish()
    if which == "waits":
        waits(r, emulated)
        r.finish()
    if which.startswith("graphs"):
        graphs(r, emulated, which)
        r.finish()
    steps = 2 if which == "context" else 4
    seeds = range(7, 23)  # the first is that of settings()
    right = [r.train("right-%d" % seed, settings(r, precision__compute="fp32", run__steps=steps, run__seed=seed)) for seed in seeds]
    meshes = {"alone": [{}], "ranks": [{"parallel__tensor": 2, "parallel__pipeline": 2, "parallel__data": 2}],
              "context": [{"parallel__context": 2}]}[which]
    ranks = {"alone": 1, "ranks": 8, "context": 2}[which]
    for compute in ("fp16", "bf16") if which == "alone" else ("fp16",):
        r.program = os.path.abspath(program)
        honest = [r.train("honest-%s-%d" % (compute, seed), settings(r, precision__compute=compute, run__steps=steps, run__seed=seed))
                  for seed in seeds]
        r.program = emulated
        for mesh in meshes:
            s = settings(r, precision__compute=compute, run__steps=steps, device__tune=False, **mesh)
            got = r.train("card-" + compute, s, ranks)
            check(r, "%s on %d" % (compute, ranks), got, list(zip(honest, right)))
    if which == "alone":
        got = r.train("card-fp32", settings(r, precision__compute="fp32"))
        for field in ("loss", "grad_norm"):
            d = rig.relative(rig.curve(got, field), rig.curve(right[0], field))
            r.expect(d <= 1e-5, "fp32: %s differs by %.1e" % (field, d))
    r.finish()


main()
