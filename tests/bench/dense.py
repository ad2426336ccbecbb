"""Dense training (coverage 1) against PyTorch DDP on this machine.

The same LLaMA, the same initial weights, the same samples in the same order, one thread per rank, Gloo on loopback in a
network namespace of its own. The two alternate, `--repeat` times for each number of ranks, and the medians are reported.
A Tessera run is the whole product: daemon, scheduler, workers, reports.

    ./dev bench dense [--worlds 2,4] [--steps 40] [--repeat 3] [--out docs/results/dense.md]
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
CACHE = pathlib.Path(os.environ["TESSERA_CACHE"])
WARM = 8  # steps left out of the timings
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 1024,
          "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 260,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
          "max_position_embeddings": 2048, "initializer_range": 0.02}


def in_namespace(command, env=None):
    """Runs a command alone on a loopback interface; returns the bytes that went over it."""
    script = ('ip link set lo up; before=$(awk "/lo:/ {print \\$10}" /proc/net/dev); "$@" >&2; code=$?; '
              'after=$(awk "/lo:/ {print \\$10}" /proc/net/dev); echo $((after - before)); exit $code')
    prefix = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    done = subprocess.run(prefix + ["bash", "-c", script, "bash"] + [str(c) for c in command], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-3000:]}")
    return int(done.stdout.strip().splitlines()[-1])


def summarise(path, wire, steps):
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    rows = [r for r in rows if "step_seconds" in r]
    assert len(rows) == steps, f"{path}: {len(rows)} of {steps} steps"
    warm = rows[WARM:]
    memory = max(r.get("memory_peak_bytes", r.get("peak_tensor_bytes", 0)) for r in rows)
    return {"ms": 1000 * statistics.median(r["step_seconds"] for r in warm), "memory": memory,
            "resident": max(r["resident_bytes"] for r in rows), "wire": wire / steps,
            "losses": [r["loss"] for r in rows]}


def run_tessera(work, a, world, changes=None, preload=""):
    """changes: of spec, laid over a dense job's. preload: a library for all its processes."""
    state = work / f"state-{world}"
    shutil.rmtree(state, ignore_errors=True)
    job = {"name": "dense", "spec": {
        "model": {"configPath": str(work / "config.json"), "initialWeights": str(work / "weights")},
        "data": {"train": a.data, "sequenceLength": a.sequence_length},
        "workers": {"count": world, "batch": a.batch}, "subnetwork": {"coverage": 1.0, "scheme": "full"},
        "optimizer": {"learningRate": 1e-3, "weightDecay": 0.1, "clipNorm": 1.0},
        "schedule": {"steps": a.steps, "warmupSteps": 10, "decay": "cosine", "finalLearningRateRatio": 0.1, "seed": 1},
        "checkpoint": {"exportHuggingFace": False}, "resources": {"cpuThreads": 1}}}
    for part, change in (changes or {}).items():
        job["spec"][part] = {**job["spec"].get(part, {}), **change} if isinstance(change, dict) else change
    (work / "job.json").write_text(json.dumps(job))
    env = dict(os.environ, TESSERA_STATE_DIR=str(state))
    if preload:
        env["LD_PRELOAD"] = preload
    wire = in_namespace(["bash", "-c", f"{BIN}/tessera train {work}/job.json --no-sample; code=$?; "
                         f"{BIN}/tessera daemon stop; exit $code"], env)
    log = next(state.glob("jobs/*/metrics.jsonl"))
    return summarise(log, wire, a.steps)


def run_peer(work, a, world, flags=()):
    out = work / "peer.jsonl"
    wire = in_namespace([sys.executable, ROOT / "tests/peers/torch_parallel.py", "--config", work / "config.json", "--weights",
                         work / "weights", "--data", a.data, "--world", world, "--steps", a.steps, "--batch", a.batch,
                         "--sequence-length", a.sequence_length, "--out", out, "--memory-counter",
                         ROOT / "build/release/lib/libtessera_memory_counter.so", *flags])
    return summarise(out, wire, a.steps)


def common_arguments(p, steps):
    p.add_argument("--steps", type=int, default=steps)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--sequence-length", type=int, default=256)
    p.add_argument("--data", default=str(CACHE / "data/gcide-bytes/train-00000.bin"))


def initialise(work, a):
    """config.json and weights for all runs."""
    (work / "config.json").write_text(json.dumps(CONFIG))
    subprocess.run([sys.executable, ROOT / "tests/peers/torch_parallel.py", "--only-initialise", "--config",
                    work / "config.json", "--weights", work / "weights", "--data", a.data], check=True)


def median(runs, key):
    return statistics.median(r[key] for r in runs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--worlds", default="2,4")
    common_arguments(p, steps=40)
    p.add_argument("--preload", default="", help="library to preload into Tessera's processes, e.g. an allocator")
    p.add_argument("--out", help="also write the table to this file")
    a = p.parse_args()
    lines = [f"`./dev bench dense --worlds {a.worlds} --steps {a.steps} --repeat {a.repeat} --batch {a.batch} "
             f"--sequence-length {a.sequence_length}{' --preload ' + os.path.basename(a.preload) if a.preload else ''}`, "
             f"{datetime.date.today()}, {cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}. "
             f"Medians of {a.repeat} alternating runs.", "",
             "| ranks | | ms/step | tokens/s | peak tensor MiB per rank | peak RSS MiB per rank | wire MB/step |",
             "|---|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        work = pathlib.Path(folder)
        initialise(work, a)
        for world in (int(w) for w in a.worlds.split(",")):
            ours, theirs = [], []
            for _ in range(a.repeat):
                ours.append(run_tessera(work, a, world, preload=a.preload))
                theirs.append(run_peer(work, a, world))
            tokens = world * a.batch * a.sequence_length
            for name, runs in (("Tessera", ours), ("PyTorch DDP", theirs)):
                ms = median(runs, "ms")
                lines.append(f"| {world} | {name} | {ms:.1f} | {tokens / ms * 1000:,.0f} | {median(runs, 'memory') / 2**20:.1f} | "
                             f"{median(runs, 'resident') / 2**20:.0f} | {median(runs, 'wire') / 1e6:.1f} |")
            ratio = median(ours, "ms") / median(theirs, "ms")
            gap = max(abs(x - y) for x, y in zip(ours[0]["losses"], theirs[0]["losses"]))
            lines.append(f"| {world} | ratio | {ratio:.3f} | {1 / ratio:.3f} | {median(ours, 'memory') / max(1, median(theirs, 'memory')):.3f} | "
                         f"{median(ours, 'resident') / median(theirs, 'resident'):.3f} | {median(ours, 'wire') / median(theirs, 'wire'):.3f} |")
            lines.append(f"| {world} | largest difference of a step's loss | {gap:.5f} | | | | |")
            print("\n".join(lines[-4:]), file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if a.out:
        pathlib.Path(a.out).write_text("# Dense training against PyTorch DDP\n\n" + text)


def cpu():
    with open("/proc/cpuinfo", encoding="ascii") as f:
        return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))


if __name__ == "__main__":
    main()
