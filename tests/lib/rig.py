"""What the whole-program tests share: token files, configs, runs, curves. Standard library only.

Shards are written here byte by byte, independently of mtrain's own code. A run's curve is what metrics.jsonl says.
"""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SKIP = 77
MPI_ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_base_warn_component_unused": "0",
    "OMP_NUM_THREADS": "1",
}


def write_shard(prefix, documents):
    """Megatron .bin/.idx of u16 tokens from lists of ids."""
    with open(prefix + ".bin", "wb") as f:
        for d in documents:
            f.write(struct.pack("<%dH" % len(d), *d))
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(documents), len(documents) + 1))
        f.write(struct.pack("<%di" % len(documents), *map(len, documents)))
        offset, offsets = 0, []
        for d in documents:
            offsets.append(offset)
            offset += 2 * len(d)
        f.write(struct.pack("<%dq" % len(offsets), *offsets))
        f.write(struct.pack("<%dq" % (len(documents) + 1), *range(len(documents) + 1)))


def text_like(vocab, tokens, seed=1):
    """Documents in which the next token depends on the last one, so that there is something to learn."""
    rng = random.Random(seed)
    documents, left = [], tokens
    while left > 0:
        n = min(left, rng.randint(20, 200))
        d = [rng.randrange(vocab)]
        while len(d) < n:
            d.append((d[-1] * 7 + 3) % vocab if rng.random() < 0.7 else rng.randrange(vocab))
        documents.append(d)
        left -= n
    return documents


class Rig:
    """A scratch folder with a program to run in it."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.dir = tempfile.mkdtemp(prefix="mtrain-test-")
        self.failures = 0
        self.mpirun = ["mpirun"]  # and its options

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def ini(self, name, settings):
        """Writes settings {"section.key": value} as an INI file and returns its path."""
        sections = {}
        for key, value in settings.items():
            section, key = key.split(".", 1)
            sections.setdefault(section, []).append((key, value))
        path = self.path(name + ".ini")
        with open(path, "w") as f:
            for section, pairs in sections.items():
                f.write("[%s]\n" % section)
                for key, value in pairs:
                    if isinstance(value, bool):
                        value = "true" if value else "false"
                    f.write("%s = %s\n" % (key, value))
        return path

    def command(self, ranks, arguments):
        """ranks: how many, or a list of the arguments that each has besides."""
        if isinstance(ranks, list):
            each = [["-n", "1", self.program] + arguments + own for own in ranks]
            return self.mpirun + sum(([":"] + one for one in each), [])[1:]
        if ranks == 1:
            return [self.program] + arguments
        return self.mpirun + ["-n", str(ranks), self.program] + arguments

    def start(self, ranks, arguments, **keywords):
        env = dict(os.environ, **MPI_ENV)
        env.update(keywords.pop("env", {}))
        return subprocess.Popen(self.command(ranks, arguments), cwd=self.dir, env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **keywords)

    def run(self, ranks, arguments, timeout=240, **keywords):
        """(exit code, stdout, stderr, seconds)"""
        begin = time.time()
        p = self.start(ranks, arguments, **keywords)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            raise SystemExit("%s: not done after %d s\n%s\n%s" % (" ".join(arguments), timeout, out, err))
        return p.returncode, out, err, time.time() - begin

    def train(self, name, settings, ranks=1, expect=0, arguments=(), **keywords):
        """Trains with the settings in runs/NAME (fresh) and returns the metric lines."""
        settings = dict(settings)
        settings.setdefault("run.dir", self.path("runs", name))
        path = self.ini(name, settings)
        code, out, err, _ = self.run(ranks, ["--config", path] + list(arguments), **keywords)
        if code != expect:
            raise SystemExit("%s: exit code %d, expected %d\n%s\n%s" % (name, code, expect, out, err))
        return self.metrics(settings["run.dir"])

    def metrics(self, run_dir, kind="train"):
        with open(os.path.join(run_dir, "metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        return [line for line in lines if line["kind"] == kind]

    def expect(self, condition, text):
        if not condition:
            self.failures += 1
        print(("ok   " if condition else "FAIL ") + text, flush=True)

    def finish(self):
        if self.failures == 0:
            shutil.rmtree(self.dir, ignore_errors=True)
        else:
            print("%d failed; kept %s" % (self.failures, self.dir))
        sys.exit(1 if self.failures else 0)


def curve(lines, field):
    return [float(line[field]) for line in lines]


def distance(a, b):
    assert len(a) == len(b), (len(a), len(b))
    return max(abs(x - y) for x, y in zip(a, b))


def relative(a, b):
    assert len(a) == len(b), (len(a), len(b))
    return max(abs(x - y) / max(abs(y), 1e-30) for x, y in zip(a, b))


MORE_SEEDS = (101, 102, 103, 104, 105)


def curve_rule(x, p, r, more=()):
    """The design's rule: max|X − R| ≤ 2·max|P − R| + 1e-6·scale. Returns (holds, score). One P of few steps may be near R by
    luck: MORE has further pairs of P and R, of runs with other seeds, and the farthest counts."""
    bound = 2 * max(distance(a, b) for a, b in [(p, r), *more]) + 1e-6 * max(map(abs, r))
    return distance(x, r) <= bound, distance(x, r) / bound
