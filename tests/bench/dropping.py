"""Losses of gradient dropping against dense training.

Every run trains the same model from the same weights on the same samples; ranks are threads of one process. Each row has the
best of the rates of learning on the first seed, and the other seeds with it. Losses do not depend on what else the machine does.
Runs are kept in --runs and not repeated, so that a study can be stopped, and made longer by more seeds, rates or rules.

    ./dev bench dropping [--model llama|resnet|bert] [--study rules,bytes,frozen,layers,recompute,workers,sdp,rare] \
        [--steps 3000] [--seeds 1,2,3] [--rates 1e-3,2e-3,4e-3] [--densities 0.5,0.3,0.1] [--preset llama-8m] [--out FILE]
    ./dev bench dropping ... --only-done                                           # what there is of it so far
    ./dev bench dropping --study cost --preset llama-134m --steps 6 --ranks 1      # share of a step that dropping takes

rules      rules, the rest lost                               share      importance shares of picking rules
residual   with and without one, at equal density             bytes      with and without one, at equal bytes
frozen     unsent elements frozen instead of zero             layers     budgets of layers: size, sum sqrt(v), its root, one
recompute  layer budgets never, once, ten times                          threshold for all
sdp        subnetworks of blocks, C = 5/8                     workers    two of four workers contribute a third
rare       losses of the rarest hundredth of the tokens       cost       above
"""
import argparse
import pathlib

from study_models import MODELS
from study_runs import ROOT, Runs, against, best, finished, machine, shown

BITMAP, SKETCH = 1 / 64, 1 / 16  # of the dense bytes: what picks cost


def residual(rule, **more):
    return {"rule": rule, "residual": "fp32", **more}


def studies(density, steps):
    """Name of the study -> rows of (what the table says, options of the run)."""
    d = {"density": density}
    rows = {}
    plain = ("rotation", "random", "second_moment", "momentum_ratio")
    rows["rules"] = [(f"{rule}, rest lost", {"rule": rule, **d}) for rule in plain]
    rows["residual"] = [("rotation, rest lost", {"rule": "rotation", **d})]
    rows["residual"] += [(f"{rule}, residual", residual(rule, **d)) for rule in ("rotation", "cyclic_top_k", "sketch_top_k")]
    rows["residual"] += [("magnitude, rest lost", {"rule": "magnitude", **d}), ("magnitude, residual", residual("magnitude", **d))]
    rows["share"] = []
    for share in (0.25, 0.5, 0.75):
        rows["share"] += [(f"{rule}, share {share}, rest lost", {"rule": rule, "share": share, **d})
                          for rule in ("second_moment", "momentum_ratio")]
        rows["share"].append((f"cyclic_top_k, share {share}, residual", residual("cyclic_top_k", share=share, **d)))
    rows["bytes"] = [("rotation, rest lost", {"rule": "rotation", **d}), ("rotation, residual", residual("rotation", **d)),
                     ("cyclic_top_k, residual", residual("cyclic_top_k", density=density - BITMAP)),
                     ("cyclic_top_k, residual bf16", {"rule": "cyclic_top_k", "residual": "bf16", "density": density - BITMAP})]
    # Four workers' pairs are density * 4 of the dense bytes.
    rows["bytes"] += [("magnitude, rest lost", {"rule": "magnitude", "density": density / 4}),
                      ("magnitude, residual", residual("magnitude", density=density / 4))]
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
    rows["rare"] = [(f"{rule}, rest lost", {"rule": rule, **d}) for rule in plain]
    rows["rare"] += [("cyclic_top_k, residual", residual("cyclic_top_k", **d)),
                     ("second_moment alone, no floor", {"rule": "second_moment", "share": 1, **d})]
    rows["cost"] = [(f"{rule}", {"rule": rule, **d}) for rule in ("rotation", "second_moment")]
    rows["cost"] += [("cyclic_top_k, residual fp32", residual("cyclic_top_k", **d)),
                     ("cyclic_top_k, residual fp32, picks every 10 steps", residual("cyclic_top_k", refresh=10, **d))]
    return rows


def table(a, name, base, rows, runs, seeds):
    rare = name == "rare"
    lines = [f"| {name} | density | validation loss | against dense | best rate | bytes per step and rank, of dense |"
             + (" rare tokens | against dense | common tokens |" if rare else ""),
             "|---|---|---|---|---|---|" + ("---|---|---|" if rare else "")]

    def row(label, extra, reference):
        rate, results = best(runs, {**base, **extra}, a.rates, seeds)
        reference = reference or results
        sent = [r["bytes_per_step"] / max(1, d["bytes_per_step"])
                for r, d in zip(results, reference) if finished([r]) and finished([d])]
        show = lambda field, digits: shown(results, field, digits, len(a.seeds))
        text = (f"| {label} | {extra.get('density', 1):.3g} | {show('validation_loss', 4)} | {against(results, reference)} | "
                + (f"{rate:g} | " if rate else "– | ") + (f"{sent[0]:.3f} |" if sent else "– |"))
        if rare:
            text += f" {show('rare_loss', 3)} | {against(results, reference, 'rare_loss')} | {show('common_loss', 3)} |"
        lines.append(text)
        return results

    dense = {}  # by the number of ranks
    for label, extra in rows:
        of = extra.get("ranks", a.ranks)
        if of not in dense:
            dense[of] = row("dense" if of == a.ranks else f"dense, {of} workers", {"ranks": of}, None)
        row(label, extra, dense[of])
    return lines


def cost_table(a, base, rows, runs):
    lines = ["| | step, CPU s | selecting, cutting, spreading out, CPU s | share of the step |", "|---|---|---|---|"]
    for label, extra in [("dense", {})] + rows:
        r = runs({**base, **extra, "learning-rate": a.rates[0], "seed": 1, "evaluation-tokens": 1})
        if r is not None:
            lines.append(f"| {label} | {r['cpu_seconds']:.3f} | {r['dropping_seconds']:.4f} | "
                         f"{100 * r['dropping_seconds'] / r['cpu_seconds']:.2f} % |")
            elements = r["elements"]
    lines.append(f"\n{elements:,} parameters, {base['batch'] * base['length'] * base.get('accumulation', 1)} tokens a "
                 "step and rank, one thread, its CPU time; medians over the steps. Dense gradients are copied too, which is not taken off.")
    return lines


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda kind: lambda text: [kind(part) for part in text.split(",")]
    parser.add_argument("--model", choices=sorted(MODELS), default="llama")
    parser.add_argument("--study", default="rules,bytes,frozen,share")
    parser.add_argument("--densities", type=numbers(float), default=[0.3])
    parser.add_argument("--seeds", type=numbers(int), default=[1, 2, 3])
    parser.add_argument("--rates", type=numbers(float), default=[1e-3, 2e-3, 4e-3])
    parser.add_argument("--preset", default="llama-8m")
    parser.add_argument("--shape", help="of a LLaMA instead of the preset: HIDDENxFFNxLAYERSxHEADS")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--validation-tokens", type=int, default=32768)
    parser.add_argument("--warmup", type=float, default=0, help="dense share of the run")
    parser.add_argument("--runs", default=str(ROOT / "build/studies/dropping.jsonl"), help="what was run is kept here, and not again")
    parser.add_argument("--only-done", action="store_true", help="run nothing")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def main():
    a = options()
    runs = Runs(a.runs, a.only_done)
    base = {"steps": a.steps, "ranks": a.ranks, "batch": a.batch, "evaluation-tokens": a.validation_tokens,
            **MODELS[a.model](a, ROOT)}
    if a.model == "llama" and "rare" in a.study.split(","):
        base["rare"] = None
    if a.accumulation > 1:
        base["accumulation"] = a.accumulation
    if a.warmup > 0:
        base["warmup"] = a.warmup
    listed = lambda values: ",".join(map(str, values))
    lines = [f"`./dev bench dropping --model {a.model} --study {a.study} "
             + ("" if a.model != "llama" else f"--shape {a.shape} " if a.shape else f"--preset {a.preset} ")
             + f"--steps {a.steps} --ranks {a.ranks} --batch {a.batch} --accumulation {a.accumulation} --length {a.length} "
             f"--validation-tokens {a.validation_tokens} --warmup {a.warmup:g} --densities {listed(a.densities)} --seeds {listed(a.seeds)} --rates {listed(a.rates)}`, "
             f"{machine()}.", ""]
    for name in a.study.split(","):
        rows = [row for density in a.densities for row in studies(density, a.steps)[name]]
        if name == "cost":
            lines += cost_table(a, base, rows, runs) + [""]
            continue
        for count in [len(a.seeds)] if a.only_done else range(1, len(a.seeds) + 1):  # the first seed of all rows first
            shown_lines = table(a, name, base, rows, runs, a.seeds[:count])
        lines += shown_lines + [""]
        if a.out:
            a.out.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
