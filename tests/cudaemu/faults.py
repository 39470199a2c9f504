"""What goes wrong with a card ends the whole job with one line and the right code. The emulated card is told to fail.
Usage: faults.py MTRAIN-ON-THE-EMULATOR WITH-MPI WITH-NCCL"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig


def settings(r):
    return {
        "run.steps": 50, "run.dir": r.path("run"), "model.layers": 2, "model.hidden": 64, "model.heads": 1,
        "model.sequence": 16, "model.vocab": 257, "batch.global": 4, "batch.micro": 1, "optimizer.lr": 0.003,
        "data.train": r.path("tokens"), "checkpoint.every": 0, "checkpoint.load": "none", "device.backend": "cuda",
    }


def main():
    program, with_mpi, with_nccl = sys.argv[1:]
    r = rig.Rig(program)
    rig.write_shard(r.path("tokens"), rig.text_like(257, 4000))
    path = r.ini("faults", settings(r))

    def fails(name, ranks, codes, pattern, env, most_seconds=60, arguments=()):
        code, out, err, seconds = r.run(ranks, ["--config", path] + list(arguments), env=env)
        lines = [line for line in err.splitlines() if line.startswith("mtrain:") and not line.startswith("mtrain: warning:")]
        r.expect(code in codes, "%s: exit code %d" % (name, code))
        r.expect(len(lines) == 1 and re.search(pattern, lines[0]), "%s: %s" % (name, lines or err[-600:]))
        r.expect(seconds < most_seconds, "%s: %.1f s" % (name, seconds))
        return out + err

    fails("no driver", 1, (1,), r"^mtrain: cuda: no card: this machine has no NVIDIA driver$", {"CUDAEMU_DRIVER": "0"})
    fails("old driver", 1, (1,), r"the driver is for CUDA 11\.4, .* update the driver", {"CUDAEMU_DRIVER": "11040"})
    fails("no card", 1, (1,), r"cuda: no card: the driver sees none", {"CUDAEMU_CARDS": "0"})
    out = fails("little memory", 1, (1,),
                r"has .* free, too little: rank 0 needs .* \(weights .*, optimizer .*, activations .*, workspace .*\); "
                r"parallel\.recompute = full, more .*tensor", {"CUDAEMU_MEMORY": str(66 << 20)})
    r.expect("step 1" not in out, "little memory: before any training")
    fails("no memory at all", 1, (1,), r"no memory left", {"CUDAEMU_MEMORY": "100"})
    fails("a lost card", 1, (1,), r"the card was lost: uncorrectable ECC error", {"CUDAEMU_LOST": "200"})
    if with_mpi == "true":
        env = {"CUDAEMU_LOST": "300"}
        fails("a lost card of two", 2, (1, 6), r"rank \d: .*the card was lost: uncorrectable ECC error", env)
    if with_nccl == "true":
        env = {"CUDAEMU_CARDS": "2", "CUDAEMU_NCCL_FAILS": "60"}
        told = fails("a broken communicator", 2, (6,), r"rank \d: .*in group \w+: NCCL: remote process exited", env)
        r.expect(told.count("aborts") >= 4, "a broken communicator: %d communicators are aborted" % told.count("aborts"))
        # One rank's calls go nowhere: the other's wait ends with the call's name.
        env = {"CUDAEMU_CARDS": "2", "CUDAEMU_NCCL_SILENT": "1:60"}
        fails("a peer that is silent", 2, (6,), r"rank \d: .*in group \w+: not done after 3 s", env,
              arguments=["--set", "launch.step_timeout=3"])
    r.finish()


main()
