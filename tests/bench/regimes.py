"""Every regime against PyTorch's DDP and FSDP2: step time, memory and bytes of one model on one machine.

The same LLaMA, the same initial weights, the same samples, one thread per rank, Gloo on loopback in a network namespace
of its own. Rows take turns, `--repeat` times, and the medians are reported. A Tessera run is the whole product: daemon,
scheduler, workers, reports. Of memory and bytes each row has those of the rank that needs most, and of all ranks
together; they do not depend on what else the machine does. Step times do.

    ./dev bench regimes [--world 4] [--steps 24] [--repeat 3] [--only "pytorch,b-sdp"] [--out docs/results/regimes.md]
"""
import argparse
import datetime
import os
import pathlib
import platform
import sys
import tempfile

import dense

FSDP = {"sharding": "fsdp"}
CHECKPOINTING = {"activationCheckpointing": "always"}
DROPPING = {"dropping": {"mode": "enforce", "density": 0.3, "rule": "rotation", "residual": "none", "warmupFraction": 0}}


def masks(coverage, granularity="block", masking="forward"):
    return {"subnetwork": {"coverage": coverage, "scheme": "cyclic", "granularity": granularity, "masking": masking}}


# Name, and what it changes of a dense job; or the flags of the peer.
REGIMES = [
    ("PyTorch DDP", []),
    ("PyTorch FSDP2", ["--fsdp"]),
    ("PyTorch FSDP2, checkpointing", ["--fsdp", "--checkpointing"]),
    ("DDP", {}),
    ("FSDP", FSDP),
    ("FSDP, checkpointing", FSDP | CHECKPOINTING),
    ("B-SDP 1/2", masks(0.5)),
    ("N-SDP 1/2", masks(0.5, "neuron")),
    ("Bb-SDP 1/2", masks(0.5, masking="backward")),
    ("B-SDP 1/2, FSDP, checkpointing", masks(0.5) | FSDP | CHECKPOINTING),
    ("N-SDP 1/2, FSDP, checkpointing", masks(0.5, "neuron") | FSDP | CHECKPOINTING),
    ("dropping 0.3", DROPPING),
    ("B-SDP 1/2, dropping 0.3", masks(0.5) | DROPPING),
    ("B-SDP 1/2, dropping 0.3, checkpointing", masks(0.5) | DROPPING | CHECKPOINTING),
]


def run(work, a, what):
    if isinstance(what, dict):
        return dense.run_tessera(work, a, a.world, what)
    return dense.run_peer(work, a, a.world, what)


def ratio(value, base):
    return f"{value:.1f}" if base is None else f"{value:.1f} ({value / base:.2f})"


def row(name, runs, base):
    """base: the medians of PyTorch DDP, by column; empty: there are none."""
    own = {"ms": dense.median(runs, "ms"), "memory": dense.median(runs, "memory") / 2**20,
           "resident": dense.median(runs, "resident") / 2**20, "wire": dense.median(runs, "wire") / 1e6}
    cells = " | ".join(ratio(own[key], base.get(key)) for key in own)
    return own, f"| {name} | {cells} | {runs[0]['losses'][-1]:.4f} |"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--world", type=int, default=4)
    dense.common_arguments(p, steps=24)
    p.add_argument("--only", default="", help="rows whose names begin so, in any case, and PyTorch DDP")
    p.add_argument("--out", help="also write the table to this file")
    a = p.parse_args()
    wanted = tuple(only.strip().lower() for only in a.only.split(",") if only.strip())
    rows = [r for r in REGIMES if not wanted or r[0] == "PyTorch DDP" or r[0].lower().startswith(wanted)]
    results = {name: [] for name, _ in rows}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        work = pathlib.Path(folder)
        dense.initialise(work, a)
        for turn in range(a.repeat):
            for name, what in rows:
                print(f"{turn + 1}/{a.repeat} {name}", file=sys.stderr, flush=True)
                results[name].append(run(work, a, what))
    only = f' --only "{a.only}"' if a.only else ""
    lines = [f"`./dev bench regimes --world {a.world} --steps {a.steps} --repeat {a.repeat} --batch {a.batch} --sequence-length "
             f"{a.sequence_length}{only}`, {datetime.date.today()}, {dense.cpu()}, {os.cpu_count()} cores, {platform.system()} "
             f"{platform.release()}, load average {load:.1f} before it. Medians of {a.repeat} runs by turns; in brackets the ratio to PyTorch DDP.", "",
             "| | ms/step | peak tensor MiB | peak RSS MiB | wire MB/step, all ranks | loss of the last step |",
             "|---|---|---|---|---|---|"]
    base = {}
    for name, runs in results.items():
        own, line = row(name, runs, base)
        base = base or own
        lines.append(line)
    text = "\n".join(lines) + "\n"
    print(text)
    if a.out:
        pathlib.Path(a.out).write_text("# Regimes against PyTorch DDP and FSDP2\n\n" + text)


if __name__ == "__main__":
    main()
