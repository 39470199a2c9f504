"""`mtrain calibrate` measures every op on an (emulated) card of which no datasheet is known, and `mtrain plan` reads what it wrote.
Usage: calibrate.py MTRAIN MTRAIN-ON-THE-EMULATOR"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import rig

OPS = ("gemm", "attention_forward", "attention_backward", "norm_forward", "norm_backward", "residual_forward", "loss_stats",
       "loss_backward", "embedding_backward", "position_forward", "swiglu_backward")


def main():
    r = rig.Rig(sys.argv[2])
    out = r.path("card.ini")
    code, _, err, _ = r.run(1, ["calibrate", "--output", out, "--backend", "cuda"], env={"CUDAEMU_MEMORY": str(400 << 20)})
    r.expect(code == 0, "exit code %d %s" % (code, err))
    with open(out) as f:
        text = f.read()
    for peak in ("fp16", "bf16", "fp32"):
        r.expect(re.search(r"^peak_%s_tflops = [0-9.e-]+, measured: the best product" % peak, text, re.M), "a peak of " + peak)
        part = text.split("[rates.%s]" % peak)[1].split("[")[0]
        missing = [op for op in OPS if not re.search(r"^%s = [0-9]" % op, part, re.M)]
        r.expect(not missing, "%s: all ops are timed, but for %s" % (peak, missing))
    r.expect(re.search(r"^memory_gib = 0\.99\d*, measured", text, re.M), "what is free is the memory, with the driver's share")
    r.expect(re.search(r"^launch_us = [0-9.]+, measured", text, re.M), "the host's launches are timed")

    code, _, err, _ = r.run(1, ["calibrate", "--output", out, "--backend", "cuda"], env={"CUDAEMU_MEMORY": str(190 << 20)})
    r.expect(code == 1 and re.search("has 1[0-9]+ MiB free .* to calibrate takes 128", err) and err.count("\n") == 1, "a full card: " + err)

    r.program = os.path.abspath(sys.argv[1])
    plan = r.ini("plan", {"run.steps": 1, "run.dir": r.path("none"), "model.layers": 2, "model.hidden": 64, "model.heads": 1,
                          "model.sequence": 32, "model.vocab": 257, "batch.global": 4, "batch.micro": 2, "optimizer.lr": 0.001,
                          "data.train": "none"})
    code, text, err, _ = r.run(1, ["plan", "--config", plan, "--hardware", out, "--json"])
    r.expect(code == 0 and json.loads(text)["step_seconds"] > 0, "a plan on it: exit code %d %s" % (code, err))
    r.finish()


main()
