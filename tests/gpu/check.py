"""scripts/gpu-check where there is no card: what it says, its exit codes, and its parts on the emulated card of a build, whose
JSON is read strictly. Usage: check.py BUILD | check.py none"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
failures = 0


def expect(good, text):
    global failures
    failures += not good
    print(("ok   " if good else "FAIL ") + text, flush=True)


def check(arguments, path=None, **more):
    env = dict(os.environ, **more)
    if path is not None:
        env["PATH"] = path
    done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "gpu-check")] + arguments, capture_output=True, text=True,
                          env=env)
    return done.returncode, done.stdout, done.stderr


def strict(path):
    def no_twice(pairs):
        keys = [k for k, _ in pairs]
        if len(keys) != len(set(keys)):
            raise ValueError("a key twice: %s" % keys)
        return dict(pairs)

    def never(text):
        raise ValueError("not a JSON number: " + text)

    with open(path) as f:
        return json.load(f, object_pairs_hook=no_twice, parse_constant=never)


def without_a_card():
    with tempfile.TemporaryDirectory() as empty:
        for part in ("ops", "train", "bench"):
            code, out, _ = check([part], path=empty)
            expect(code == 77 and "skipped: no NVIDIA driver" in out, "%s without a driver: %d, %s" % (part, code, out.strip()))
        fake = os.path.join(empty, "nvidia-smi")
        with open(fake, "w") as f:
            f.write("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
        os.chmod(fake, 0o755)
        code, out, _ = check(["ops"], path=empty + ":/bin:/usr/bin")
        expect(code == 77 and "no card on this machine: No devices were found" in out, "a driver without a card: %s" % out.strip())
    code, _, err = check(["all"])
    expect(code == 2 and "invalid choice: 'all'" in err, "an unknown part: %d" % code)
    code, _, err = check([])
    expect(code == 2 and "usage:" in err, "no part: %d" % code)
    code, out, _ = check(["ops", "--emulator", "/nowhere"])
    expect(code == 1 and "/nowhere has no emulated card" in out, "a build that is none: %d" % code)


def curves():
    golden = strict(os.path.join(ROOT, "tests", "golden", "gpt-124m", "curves.json"))
    expect(len(golden) == 4, "recorded: the run, and three with other seeds")
    for curves in golden:
        for compute in ("fp32", "fp16", "bf16"):
            for field in ("loss", "grad_norm"):
                expect(len(curves[compute][field]) == 6 and all(x > 0 for x in curves[compute][field]),
                       "recorded: %s of %s" % (field, compute))
        expect(curves["fp32"] != curves["fp16"] != curves["bf16"], "recorded: three different curves")


def emulated(build):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ops.json")
        code, out, err = check(["ops", "--emulator", build, "--json", path])
        expect(code == 0 and "gpu-check ops: 0 failed" in out, "ops: %d %s" % (code, (out + err)[-500:] if code else ""))
        ops = strict(path)
        expect(ops["failures"] == [] and len({o["op"] for o in ops["ops"]}) > 20, "ops: %d ops" % len({o["op"] for o in ops["ops"]}))
        expect(sum(o["checks"] for o in ops["ops"]) > 500 and not any(o["failed"] for o in ops["ops"]), "ops: %d checks" % sum(
            o["checks"] for o in ops["ops"]))
        path = os.path.join(folder, "bench.json")
        code, out, err = check(["bench", "--emulator", build, "--json", path])
        expect(code == 0 and "of its floor" in out, "bench: %d %s" % (code, (out + err)[-500:] if code else ""))
        bench = strict(path)
        for compute in ("fp16", "bf16"):
            calls = bench[compute]["calls"]
            expect(len(calls) > 30 and all(c["seconds"] > 0 and c["bytes"] > 0 and c["floor_seconds"] > 0 for c in calls),
                   "bench: %d calls in %s, each with its floor" % (len(calls), compute))
            expect(all(c["flops"] > 0 for c in calls if c["op"].startswith(("gemm", "attention"))), "bench: products have FLOPs")
        expect(len(bench["steps"]) == 2 and all(s["tokens_per_second"] > 0 and s["of_products"] > 0 for s in bench["steps"]),
               "bench: a whole step in fp16 and bf16")
        expect([s["graphs_step_seconds"] is not None for s in bench["steps"]] == [True, False], "bench: with graphs in fp16")
        path = os.path.join(folder, "train.json")
        code, out, err = check(["train", "--emulator", build, "--json", path])
        bits = all("resumed from step 3%s: the same bits of loss" % how in out for how in ("", " with device.graphs"))
        expect(code == 0 and bits, "train: %d %s" % (code, (out + err)[-900:] if code else ""))
        train = strict(path)
        expect(train["failures"] == [] and all(len(train[c + "_loss"]["got"]) == 6 for c in ("fp32", "fp16", "bf16")), "train: curves")
        expect(train.get("skipped") or "fp16 on 2x2x2 ranks: loss" in out, "train: ranks")


without_a_card()
curves()
if sys.argv[1] != "none":
    emulated(sys.argv[1])
sys.exit(1 if failures else 0)
