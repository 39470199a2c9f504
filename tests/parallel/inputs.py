"""Bad input, alone and on four ranks: one line that says what is wrong, the contract's exit code, an end within seconds, and
nothing left behind. Usage: inputs.py MTRAIN 1|4"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig


def settings(r, **more):
    s = {
        "run.steps": 5, "run.dir": r.path("runs", "bad"),
        "model.layers": 4, "model.hidden": 16, "model.heads": 4, "model.sequence": 8, "model.vocab": 257,
        "batch.global": 8, "batch.micro": 1, "optimizer.lr": 0.003, "data.train": r.path("tokens"),
        "device.threads": 1, "parallel.tensor": 1, "parallel.pipeline": 1,
    }
    s.update({k.replace("__", "."): v for k, v in more.items()})
    return s


def refused(r, ranks, what, code, words, s):
    path = r.ini("bad", s)
    begin = time.time()
    got, out, err, _ = r.run(ranks, ["--config", path], timeout=60)
    seconds = time.time() - begin
    lines = [line for line in err.splitlines() if line.startswith("mtrain: ")]
    r.expect(got == code, "%s: exit code %d, should be %d" % (what, got, code))
    r.expect(len(lines) == 1 and all(w in lines[0] for w in words), "%s: one line with %s: %s" % (what, words, lines))
    r.expect(seconds < 15, "%s: ended after %.1f s" % (what, seconds))


def main():
    r = rig.Rig(sys.argv[1])
    ranks = int(sys.argv[2])
    documents = rig.text_like(257, 4000)
    rig.write_shard(r.path("tokens"), documents)
    rig.write_shard(r.path("short"), documents)
    with open(r.path("short.bin"), "r+b") as f:
        f.truncate(os.path.getsize(f.name) - 100)
    rig.write_shard(r.path("tiny"), [[1, 2, 3]])
    bad = [list(d) for d in documents]
    for d in bad:
        d[5] = 300
    rig.write_shard(r.path("high"), bad)

    refused(r, ranks, "no shard", 3, ["nowhere"], settings(r, data__train=r.path("nowhere")))
    refused(r, ranks, "truncated shard", 3, ["short.idx", "truncated"], settings(r, data__train=r.path("short")))
    refused(r, ranks, "less than a window", 3, ["tiny"], settings(r, data__train=r.path("tiny")))
    refused(r, ranks, "id beyond the vocabulary", 3, ["high.bin", "300"],
            settings(r, data__train=r.path("high"), run__dir=r.path("runs", "high")))
    refused(r, ranks, "unknown key", 2, ["bad.ini:", "layres", "layers"], settings(r, model__layres=4))
    refused(r, ranks, "negative size", 2, ["model.hidden", "-16"], settings(r, model__hidden=-16))
    refused(r, ranks, "world that does not fit", 2, ["mpirun -n 3", "srun --mpi=pmix -n 3"],
            settings(r, parallel__data=3, batch__global=9))
    refused(r, ranks, "more stages than layers", 2, ["parallel.pipeline"], settings(r, parallel__pipeline=8))
    refused(r, ranks, "stage without a layer", 2, ["parallel.stages"],
            settings(r, parallel__pipeline=4, parallel__stages="4,0,0,0"))
    refused(r, ranks, "heads not divisible", 2, ["model.heads"], settings(r, parallel__tensor=3, batch__global=9))
    refused(r, ranks, "no checkpoint there", 4, ["gone"], settings(r, checkpoint__load=r.path("gone")))
    for name, here in (("optimizer.lr", "0.003"), ("model.layers", "4"), ("checkpoint.load", "auto"), ("parallel.stages", "auto")):
        there = {"optimizer.lr": "0.1", "model.layers": "2", "checkpoint.load": "none", "parallel.stages": "4"}[name]
        if ranks > 1:
            own = [["--set", "device.threads=2"]] * (ranks - 1) + [["--set", "%s=%s" % (name, there)]]
            refused(r, own, "another %s on one rank" % name, 2, ["%s = %s on rank %d" % (name, there, ranks - 1),
                                                                 "%s = %s on rank 0" % (name, here)], settings(r))
    r.expect(not os.path.exists(r.path("runs", "bad", "metrics.jsonl")), "no run was begun")

    s = settings(r, **{"run__dir": r.path("runs", "good"), "parallel__data": "auto"})
    r.train("good", s, ranks)
    other = dict(s, **{"model.hidden": 32, "run.steps": 6})
    refused(r, ranks, "model that is not the checkpoint's", 2, ["model.hidden"], other)
    step = r.path("runs", "good", "checkpoints", "step-00000005")
    name = sorted(n for n in os.listdir(step) if n.endswith(".safetensors"))[0]
    with open(os.path.join(step, name), "r+b") as f:
        f.seek(-1, 2)
        byte = f.read(1)[0]
        f.seek(-1, 2)
        f.write(bytes([byte ^ 4]))
    refused(r, ranks, "flipped byte", 4, [name], dict(s, **{"checkpoint.load": step, "run.steps": 6}))
    r.finish()


main()
