"""Validation loss of every way of training, each a whole job, on the prepared text.

Each regime runs with as many steps as the dense run, and once more with its steps extended to the dense run's FLOPs. Losses
are those of the assembled model over the same validation tokens. The runs do not depend on the machine's load.

    ./dev bench quality [--steps 400] [--seeds 1,2] [--only ddp,b-sdp] [--out docs/results/quality.md]
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
CACHE = pathlib.Path(os.environ.get("TESSERA_CACHE", pathlib.Path.home() / ".cache/tessera"))
# 5.1 M parameters outside which 133 k are embeddings and head: ten blocks, so that eight are maskable.
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 192, "intermediate_size": 640,
          "num_hidden_layers": 10, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 24, "vocab_size": 260,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
          "max_position_embeddings": 2048, "initializer_range": 0.02}
COVERAGES = (("3/4", 0.75), ("5/8", 0.625), ("1/2", 0.5), ("3/8", 0.375))


def regimes():
    """(name, spec of the job, whether it computes less than dense training)."""
    yield "ddp", {"subnetwork": {"scheme": "full", "coverage": 1.0}}, False
    for name, granularity in (("b-sdp", "block"), ("n-sdp", "neuron")):
        for text, coverage in COVERAGES:
            yield f"{name} {text}", {"subnetwork": {"granularity": granularity, "coverage": coverage}}, True
    yield "bb-sdp 3/8", {"subnetwork": {"coverage": 0.375, "masking": "backward"}}, False
    for rate in (0.25, 0.5):
        yield f"stochastic depth {rate}", {"subnetwork": {"scheme": "full"},
                                           "regularization": {"stochasticDepth": rate}}, False
    yield "dropout 0.1", {"subnetwork": {"scheme": "full"}, "regularization": {"dropout": 0.1}}, False


def train(work, a, name, spec, seed, flop_matched):
    state = work / "state"
    job = {"name": "quality", "spec": {
        "model": {"configPath": str(work / "config.json")},
        "data": {"train": f"{a.data}/train-*.bin", "validation": f"{a.data}/validation-*.bin",
                 "sequenceLength": a.sequence_length},
        "workers": {"count": a.workers, "batch": a.batch},
        "optimizer": {"learningRate": a.learning_rate},
        "schedule": {"steps": a.steps, "seed": seed, "flopMatched": flop_matched},
        "evaluation": {"tokens": a.validation_tokens},
        "checkpoint": {"exportHuggingFace": False}, "resources": {"cpuThreads": 1}, **spec}}
    (work / "job.json").write_text(json.dumps(job))
    env = dict(os.environ, TESSERA_STATE_DIR=str(state))
    run = lambda *args: subprocess.run([BIN / "tessera", *args], env=env, check=False, text=True, capture_output=True)
    try:
        done = run("train", work / "job.json", "--no-sample")
        if done.returncode != 0:
            sys.exit(f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        status = json.loads(run("get", "quality", "-o", "json").stdout)["status"]
    finally:
        run("daemon", "stop")
        subprocess.run(["rm", "-rf", state], check=True)
    memory = max(int(w["memoryPeakBytes"]) for w in status["workers"])
    traffic = max(int(w["trafficBytesPerStep"]) for w in status["workers"])
    print(f"{name} seed={seed} steps={status['totalSteps']} loss={status['validationLoss']:.4f}", file=sys.stderr, flush=True)
    return {"steps": int(status["totalSteps"]), "loss": status["validationLoss"], "memory": memory, "traffic": traffic}


def mean(runs):
    losses = [r["loss"] for r in runs]
    spread = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else ""
    return f"{statistics.mean(losses):.3f}{spread}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seeds", default="1,2")
    p.add_argument("--only", default="", help="regimes whose names start so, separated by commas")
    p.add_argument("--same-steps-only", action="store_true", help="leave the FLOP-matched runs out")
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--sequence-length", type=int, default=256)
    p.add_argument("--learning-rate", type=float, default=2e-3)
    p.add_argument("--validation-tokens", type=int, default=65536)
    p.add_argument("--data", default=str(CACHE / "data/gcide-bytes"))
    p.add_argument("--out", help="also write the table to this file")
    a = p.parse_args()
    wanted = [w.strip() for w in a.only.split(",") if w.strip()]
    seeds = [int(s) for s in a.seeds.split(",")]
    with open("/proc/cpuinfo", encoding="ascii") as f:
        cpu = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    lines = [f"`./dev bench quality {' '.join(sys.argv[1:])}`, {datetime.date.today()}, {cpu}, {platform.system()} "
             f"{platform.release()}; {a.workers} workers, {a.workers * a.batch * a.sequence_length} tokens a step, "
             f"seeds {a.seeds}.", "",
             "| regime | loss at equal steps | steps at equal FLOPs | loss at equal FLOPs | peak tensor MiB | sent MB/step |",
             "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="tessera-quality-") as folder:
        work = pathlib.Path(folder)
        (work / "config.json").write_text(json.dumps(CONFIG))
        for name, spec, cheaper in regimes():
            if wanted and not any(name.startswith(w) for w in wanted):
                continue
            same = [train(work, a, name, spec, seed, False) for seed in seeds]
            matched = None
            if cheaper and not a.same_steps_only:
                matched = [train(work, a, name, spec, seed, True) for seed in seeds]
            lines.append(f"| {name} | {mean(same)} | {matched[0]['steps'] if matched else '–'} | "
                         f"{mean(matched) if matched else '–'} | {max(r['memory'] for r in same) / 2**20:.1f} | "
                         f"{max(r['traffic'] for r in same) / 1e6:.1f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if a.out:
        pathlib.Path(a.out).write_text("# Quality of the regimes\n\n" + text)


if __name__ == "__main__":
    main()
