"""Losses of gradient dropping against dense training, by rule, density and residual.

Every run trains the same LLaMA from the same weights on the same samples; ranks are threads of one process. Each rule has
the best of the learning rates. Losses do not depend on what else the machine does. Runs that are done are kept in
--state and not repeated, so that a study can be stopped, and made longer by more seeds or rules.

    ./dev bench dropping [--study rules,residual,frozen,share] [--steps 3000] [--seeds 1,2,3] [--rates 1e-3,2e-3,4e-3] \
        [--densities 0.5,0.3,0.1] [--preset llama-8m] [--out docs/results/dropping.md]
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDY = ROOT / "build/release/bin/dropping_study"
DATA = pathlib.Path(os.environ.get("TESSERA_CACHE", pathlib.Path.home() / ".cache/tessera")) / "data/gcide-bytes"

# name of the study -> rows of (what the table says, options of the run)
def studies(densities):
    rows = {"rules": [], "residual": [], "frozen": [], "share": []}
    for d in densities:
        for rule in ("rotation", "random", "second_moment", "momentum_ratio"):
            rows["rules"].append((f"{rule}, rest lost", d, {"rule": rule}))
        for rule in ("rotation", "second_moment", "cyclic_top_k", "sketch_top_k"):
            rows["residual"].append((f"{rule}, residual fp32", d, {"rule": rule, "residual": "fp32"}))
        rows["residual"].append(("cyclic_top_k, residual bf16", d, {"rule": "cyclic_top_k", "residual": "bf16"}))
        rows["frozen"].append(("rotation, rest lost, unsent elements frozen", d, {"rule": "rotation", "freeze": None}))
        for share in (0.25, 0.75):
            rows["share"].append((f"second_moment, share {share}, rest lost", d, {"rule": "second_moment", "share": share}))
            rows["share"].append((f"cyclic_top_k, share {share}, residual fp32", d,
                                  {"rule": "cyclic_top_k", "share": share, "residual": "fp32"}))
    return rows


def run(options, state):
    key = json.dumps(options, sort_keys=True)
    if key in state["runs"]:
        return state["runs"][key]
    command = [str(STUDY)]
    for name, value in options.items():
        command += [f"--{name}"] + ([] if value is None else [str(value)])
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    state["runs"][key] = json.loads(done.stdout.strip().splitlines()[-1])
    state["path"].write_text(json.dumps(state["runs"], indent=0))
    print(key, state["runs"][key], flush=True)
    return state["runs"][key]


def best(base, extra, rates, seeds, state):
    """Mean and spread of the validation loss over the seeds at the rate with the lowest mean."""
    choices = []
    for rate in rates:
        results = [run({**base, **extra, "learning-rate": rate, "seed": seed}, state) for seed in seeds]
        losses = [result["validation_loss"] for result in results]
        spread = statistics.stdev(losses) if len(losses) > 1 else None
        choices.append((statistics.mean(losses), spread, rate, results[0]["bytes_per_step"]))
    return min(choices, key=lambda choice: choice[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="rules,residual,frozen,share")
    parser.add_argument("--densities", default="0.3")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rates", default="1e-3,2e-3,4e-3")
    parser.add_argument("--preset", default="llama-8m")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--coverage", type=float, default=1)
    parser.add_argument("--state", type=pathlib.Path, default=ROOT / "build/dropping-study.json")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()

    state = {"path": args.state, "runs": json.loads(args.state.read_text()) if args.state.exists() else {}}
    seeds = [int(seed) for seed in args.seeds.split(",")]
    rates = [float(rate) for rate in args.rates.split(",")]
    densities = [float(density) for density in args.densities.split(",")]
    base = {"preset": args.preset, "steps": args.steps, "ranks": args.ranks, "batch": args.batch,
            "length": args.length, "coverage": args.coverage, "train": str(DATA / "train-*.bin"),
            "validation": str(DATA / "validation-*.bin")}
    rows = [("dense", 1.0, {})]
    known = studies(densities)
    for name in args.study.split(","):
        rows += known[name]

    lines = [f"`./dev bench dropping --study {args.study} --preset {args.preset} --steps {args.steps} --ranks {args.ranks} "
             f"--batch {args.batch} --length {args.length} --coverage {args.coverage:g} --densities {args.densities} "
             f"--seeds {args.seeds} --rates {args.rates}`, {datetime.date.today()}, {platform.processor() or 'x86-64'}, "
             f"{os.cpu_count()} cores.", "",
             "| | density | validation loss | against dense | best rate | bytes per step and rank, of dense |",
             "|---|---|---|---|---|---|"]
    dense = None
    for label, density, extra in rows:
        options = {**extra, "density": density} if extra else {}
        loss, spread, rate, sent = best(base, options, rates, seeds, state)
        dense = dense or (loss, sent)
        shown = f"{loss:.4f}" + (f" ± {spread:.4f}" if spread is not None else "")
        lines.append(f"| {label} | {density:g} | {shown} | {100 * (loss / dense[0] - 1):+.2f} % | {rate:g} | "
                     f"{sent / dense[1]:.3f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
