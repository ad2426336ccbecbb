"""Losses of gradient dropping against dense training.

Every run trains the same model from the same weights on the same samples; ranks are threads of one process. Each row has
the best of the learning rates. Losses do not depend on what else the machine does. Runs that are done are kept in
--state and not repeated, so that a study can be stopped, and made longer by more seeds or rules.

    ./dev bench dropping [--model llama|resnet|bert] [--study rules,bytes,frozen,layers,recompute,workers,sdp,rare] \
        [--steps 3000] [--seeds 1,2,3] [--rates 1e-3,2e-3,4e-3] [--densities 0.5,0.3,0.1] [--preset llama-8m] [--out FILE]
    ./dev bench dropping --study cost --preset llama-134m --steps 6 --ranks 1      # share of a step that dropping takes

rules      rules x importance shares, the rest lost           bytes      at equal bytes, with and without a residual
frozen     unsent elements frozen instead of zero             layers     budgets of layers: size, sum sqrt(v), its root, one
share      importance shares of picking rules                            threshold for all
recompute  layer budgets never, once, ten times               workers    two of four workers contribute a third
sdp        subnetworks of blocks, C = 5/8                     rare       losses of the rarest hundredth of the tokens
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess

from dropping_models import MODELS

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDY = ROOT / "build/release/bin/dropping_study"
BITMAP, SKETCH = 1 / 64, 1 / 16  # of the dense bytes: what picks cost


def residual(rule, **more):
    return {"rule": rule, "residual": "fp32", **more}


def studies(density, steps):
    """Name of the study -> rows of (what the table says, options of the run)."""
    d = {"density": density}
    rows = {name: [] for name in ("rules", "bytes", "frozen", "share", "layers", "recompute", "workers", "sdp", "rare", "cost")}
    plain = ("rotation", "random", "second_moment", "momentum_ratio")
    rows["rules"] = [(f"{rule}, rest lost", {"rule": rule, **d}) for rule in plain]
    for share in (0.25, 0.5, 0.75):
        rows["share"] += [(f"{rule}, share {share}, rest lost", {"rule": rule, "share": share, **d})
                          for rule in ("second_moment", "momentum_ratio")]
        rows["share"].append((f"cyclic_top_k, share {share}, residual", residual("cyclic_top_k", share=share, **d)))
    rows["bytes"] = [("rotation, rest lost", {"rule": "rotation", **d}), ("rotation, residual", residual("rotation", **d)),
                     ("cyclic_top_k, residual", residual("cyclic_top_k", density=density - BITMAP)),
                     ("cyclic_top_k, residual bf16", {"rule": "cyclic_top_k", "residual": "bf16", "density": density - BITMAP})]
    if density > 2 * SKETCH:
        rows["bytes"].append(("sketch_top_k, residual", residual("sketch_top_k", density=density - SKETCH)))
    rows["frozen"] = [("rotation, unsent elements zero", {"rule": "rotation", **d}),
                      ("rotation, unsent elements frozen", {"rule": "rotation", "freeze": None, **d})]
    names = {"size": "sizes", "root": "sum sqrt(v)", "root_root": "its square root", "global": "one threshold"}
    rows["layers"] = [(f"rotation, layers by {name}", {"rule": "rotation", "layers": how, "recompute": 0, **d})
                      for how, name in names.items()]
    rows["recompute"] = [("rotation, layers by size, never recomputed", {"rule": "rotation", **d}),
                         ("layers by sum sqrt(v), once", {"rule": "rotation", "layers": "root", "recompute": 0, **d}),
                         ("layers by sum sqrt(v), ten times",
                          {"rule": "rotation", "layers": "root", "recompute": max(20, steps // 10), **d})]
    rows["workers"] = [("rotation, equal workers", {"rule": "rotation", "ranks": 4, **d}),
                       ("rotation, workers at 1.5, 1.5, 0.5, 0.5 of it",
                        {"rule": "rotation", "ranks": 4, "density": 1.5 * density, "worker-shares": "1,1,0.333333,0.333333"})]
    rows["sdp"] = [("blocks at C = 5/8, dense", {"ranks": 8, "coverage": 0.625}),
                   ("blocks at C = 5/8, rotation", {"ranks": 8, "coverage": 0.625, "rule": "rotation", **d})]
    rows["rare"] = [(f"{rule}, rest lost", {"rule": rule, "rare": None, **d}) for rule in plain]
    rows["rare"] += [("cyclic_top_k, residual", residual("cyclic_top_k", rare=None, **d)),
                     ("second_moment alone, no floor", {"rule": "second_moment", "share": 1, "rare": None, **d})]
    rows["cost"] = [(f"{rule}", {"rule": rule, **d}) for rule in ("rotation", "second_moment")]
    rows["cost"] += [("cyclic_top_k, residual fp32", residual("cyclic_top_k", **d)),
                     ("cyclic_top_k, residual fp32, picks every 10 steps", residual("cyclic_top_k", refresh=10, **d))]
    return rows


def run(options, state):
    key = json.dumps(options, sort_keys=True)
    if key in state["runs"]:
        return state["runs"][key]
    command = [str(STUDY)]
    for name, value in options.items():
        command += [f"--{name}"] + ([] if value is None else [str(value)])
    env = dict(os.environ, TESSERA_GOLDEN=str(ROOT / "tests/golden"))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    state["runs"][key] = json.loads(done.stdout.strip().splitlines()[-1])
    state["path"].write_text(json.dumps(state["runs"], indent=0))
    print(key, state["runs"][key], flush=True)
    return state["runs"][key]


def best(base, extra, rates, seeds, state):
    """The runs over the seeds at the rate with the lowest mean loss, and that rate."""
    choices = []
    for rate in rates:
        results = [run({**base, **extra, "learning-rate": rate, "seed": seed}, state) for seed in seeds]
        choices.append((statistics.mean(r["validation_loss"] for r in results), rate, results))
    return min(choices, key=lambda choice: choice[:2])[1:]


def mean(results, field, digits=4):
    values = [result[field] for result in results]
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def table(a, name, base, rows, state):
    dense_of = {}

    def dense(extra):
        keep = {k: v for k, v in extra.items() if k in ("ranks", "coverage", "rare")}
        key = json.dumps({k: v for k, v in keep.items() if k != "coverage"})
        if key not in dense_of:
            dense_of[key] = best(base, {k: v for k, v in keep.items() if k != "coverage"}, a.rates, a.seeds, state)
        return dense_of[key]

    lines = [f"| {name} | density | validation loss | against dense | best rate | bytes per step and rank, of dense |"
             + (" rare tokens | common tokens |" if name == "rare" else ""),
             "|---|---|---|---|---|---|" + ("---|---|" if name == "rare" else "")]

    def row(label, density, rate, results, reference):
        loss = statistics.mean(r["validation_loss"] for r in results)
        of = statistics.mean(r["validation_loss"] for r in reference)
        sent = results[0]["bytes_per_step"] / max(1, reference[0]["bytes_per_step"])
        text = (f"| {label} | {density} | {mean(results, 'validation_loss')} | {100 * (loss / of - 1):+.2f} % | {rate:g} | "
                f"{sent:.3f} |")
        if name == "rare":
            text += f" {mean(results, 'rare_loss', 3)} | {mean(results, 'common_loss', 3)} |"
        lines.append(text)

    for label, extra in rows:
        rate, results = best(base, extra, a.rates, a.seeds, state)
        dense_rate, reference = dense(extra)
        if len(lines) == 2:
            row("dense", "1", dense_rate, reference, reference)
        row(label, f"{extra.get('density', 1):.3g}", rate, results, reference)
    return lines


def cost_table(a, base, rows, state):
    lines = ["| | step, CPU s | selecting, cutting, spreading out, CPU s | share of the step |", "|---|---|---|---|"]
    for label, extra in [("dense", {})] + rows:
        r = run({**base, **extra, "learning-rate": a.rates[0], "seed": 1, "evaluation-tokens": 1}, state)
        lines.append(f"| {label} | {r['cpu_seconds']:.3f} | {r['dropping_seconds']:.4f} | "
                     f"{100 * r['dropping_seconds'] / r['cpu_seconds']:.2f} % |")
    lines.append(f"\n{r['elements']:,} parameters, {base['batch'] * base['length'] * base.get('accumulation', 1)} tokens a "
                 "step and rank, one thread, its CPU time; medians over the steps. Dense gradients are copied too, which is not taken off.")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda kind: lambda text: [kind(part) for part in text.split(",")]
    parser.add_argument("--model", choices=sorted(MODELS), default="llama")
    parser.add_argument("--study", default="rules,bytes,frozen,share")
    parser.add_argument("--densities", type=numbers(float), default=[0.3])
    parser.add_argument("--seeds", type=numbers(int), default=[1, 2, 3])
    parser.add_argument("--rates", type=numbers(float), default=[1e-3, 2e-3, 4e-3])
    parser.add_argument("--preset", default="llama-8m")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--warmup", type=float, default=0, help="dense share of the run")
    parser.add_argument("--state", type=pathlib.Path, default=ROOT / "build/dropping-study.json")
    parser.add_argument("--out", type=pathlib.Path)
    a = parser.parse_args()

    state = {"path": a.state, "runs": json.loads(a.state.read_text()) if a.state.exists() else {}}
    base = {"steps": a.steps, "ranks": a.ranks, "batch": a.batch, **MODELS[a.model](a, ROOT)}
    if a.accumulation > 1:
        base["accumulation"] = a.accumulation
    if a.warmup > 0:
        base["warmup"] = a.warmup
    shown = {"densities": ",".join(map(str, a.densities)), "seeds": ",".join(map(str, a.seeds)),
             "rates": ",".join(map(str, a.rates))}
    lines = [f"`./dev bench dropping --model {a.model} --study {a.study} "
             + (f"--preset {a.preset} " if a.model == "llama" else "")
             + f"--steps {a.steps} --ranks {a.ranks} --batch {a.batch} --accumulation {a.accumulation} --length {a.length} "
             f"--warmup {a.warmup:g} --densities {shown['densities']} --seeds {shown['seeds']} --rates {shown['rates']}`, "
             f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores.", ""]
    for name in a.study.split(","):
        rows = [row for density in a.densities for row in studies(density, a.steps)[name]]
        lines += (cost_table(a, base, rows, state) if name == "cost" else table(a, name, base, rows, state)) + [""]
        text = "\n".join(lines)
        if a.out:
            a.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
