"""A job over several nodes, which are one machine: mpirun's daemons start here whatever the node's name, and the launcher
numbers the nodes. Ranks are dealt out node by node, then in turn.
Usage: nodes.py MTRAIN COLLECTIVES"""
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "lib"))
import rig

SPREAD = "not on one node"


def on(hosts, order):
    return ["mpirun", "--host", hosts, "--map-by", order, "--mca", "plm_rsh_agent", os.path.join(here, "rsh"), "--mca", "pml", "ob1",
            "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]


def section(path, name):
    """{key: what follows it} of a section of an INI file."""
    lines, inside = {}, False
    with open(path) as f:
        for line in f:
            inside = line.startswith("[%s]" % name) if line.startswith("[") else inside
            if inside and "=" in line:
                key, value = line.split("=", 1)
                lines[key.strip()] = value.strip()
    return lines


def calibrated(r, devices, over):
    """The hardware file of a job with so many ranks on the first node, and its links measured over so many."""
    out = r.path("job.ini")
    code, _, err, _ = r.run(3, ["calibrate", "--output", out, "--backend", "cpu", "--threads", "1"])
    r.expect(code == 0, "calibrate: exit code %d %s" % (code, err))
    r.expect(section(out, "node")["devices_per_node"].startswith("%d, measured" % devices), "devices of a node")
    r.expect(section(out, "network")["nics_per_node"].startswith("%d, assumed" % devices), "shares of a node's network")
    for part in ("node", "network"):
        for key in ("link_gbps", "link_latency_us", "link_efficiency", "link_floor_us", "link_pair"):
            text = section(out, part)[key]
            r.expect("measured" in text and " %d ranks" % over in text, "[%s] %s = %s" % (part, key, text))
    return out


def main():
    r = rig.Rig(sys.argv[1])
    mtrain, collectives = r.program, os.path.abspath(sys.argv[2])
    os.environ["TMPDIR"] = r.dir
    rig.write_shard(r.path("tokens"), rig.text_like(257, 4000))
    s = {"run.steps": 2, "model.layers": 2, "model.hidden": 32, "model.heads": 4, "model.sequence": 16, "model.vocab": 257,
         "batch.global": 4, "batch.micro": 1, "optimizer.lr": 0.001, "data.train": r.path("tokens"), "parallel.tensor": 2,
         "checkpoint.load": "none", "checkpoint.every": 0}
    curves = []
    for order in ("slot", "node"):
        r.mpirun, r.program = on("a:2,b:2", order), collectives
        code, out, err, _ = r.run(4, [])
        r.expect(code == 0 and "local 0 of 2: 0 wrong" in out, "by %s: collectives: %s %s" % (order, out.strip(), err))
        r.program = mtrain
        folder = r.path("runs", order)
        code, _, err, _ = r.run(4, ["--config", r.ini(order, dict(s, **{"run.dir": folder}))])
        r.expect(code == 0 and (SPREAD in err) == (order == "node"), "by %s: exit code %d, warned of spread tensor ranks: %s" % (
            order, code, SPREAD in err))
        curves.append([(line["loss"], line["grad_norm"]) for line in r.metrics(folder)])
    r.expect(curves[0] == curves[1] and len(curves[0]) == 2, "the same bits wherever the ranks are")

    # Ranks 0 and 2 are on the first node, so that the second place of the other is empty.
    r.mpirun = on("a:2,b:1", "node")
    out = calibrated(r, 2, 2)
    plan = r.ini("plan", dict(s, **{"run.dir": r.path("none")}))
    code, text, err, _ = r.run(1, ["plan", "--config", plan, "--hardware", out, "--devices", "8", "--json"])
    r.expect(code == 0 and json.loads(text)["step_seconds"] > 0, "a plan on it: exit code %d %s" % (code, err))
    r.finish()


main()
