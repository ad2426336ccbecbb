"""Validation loss of every way of training, at equal steps and at equal FLOPs, beside its memory and its bytes.

Each regime trains the same model from the same weights on the same samples, four ranks as threads of one process, as many
steps as dense training; those that compute less also so many more that their FLOPs are dense training's. Losses are of the
assembled model over the same validation data. Memory and bytes are what the worst worker of a whole job of three steps
counts (daemon, scheduler, one process per worker). Nothing of it depends on what else the machine does.

    ./dev bench quality [--model llama|resnet|swin] [--steps 400] [--seeds 1,2] [--only ddp,b-sdp] [--out FILE]
    ./dev bench quality --shape 192x640x10x8 --steps 2000               # 5.2 M parameters
    ./dev bench quality --only-done                                     # what there is of it so far
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from study_models import digits, llama_config, resnet_config, text
from study_runs import ROOT, Runs, against, best, finished, machine, shown, told

BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build/release/bin"))
COVERAGES = {"3/4": 0.75, "5/8": 0.625, "1/2": 0.5, "3/8": 0.375}
DROPPING = {"rule": "rotation", "density": 0.3}
DROPPING_JOB = {"mode": "enforce", "rule": "rotation", "residual": "none", "density": 0.3, "warmupFraction": 0}


def regimes(coverages, backward):
    """(name, options of training_study, spec of a job, whether it computes less than dense training)."""
    yield "DDP", {}, {}, False
    yield "FSDP", {"sharded": None}, {"sharding": "fsdp"}, False
    for name, options, granularity in (("B-SDP", {}, "block"), ("N-SDP", {"neurons": None}, "neuron")):
        for text_of in coverages:
            coverage = COVERAGES[text_of]
            yield (f"{name} {text_of}", {**options, "coverage": coverage},
                   {"subnetwork": {"granularity": granularity, "coverage": coverage, "scheme": "cyclic"}}, True)
    coverage = COVERAGES[backward]
    yield (f"Bb-SDP {backward}", {"coverage": coverage, "backward": None},
           {"subnetwork": {"coverage": coverage, "masking": "backward", "scheme": "cyclic"}}, True)
    yield ("stochastic depth 0.5", {"stochastic-depth": 0.5}, {"regularization": {"stochasticDepth": 0.5}}, True)
    yield "dropout 0.1", {"dropout": 0.1}, {"regularization": {"dropout": 0.1}}, False
    yield "dropping 0.3", DROPPING, {"dropping": DROPPING_JOB}, False
    yield ("B-SDP 1/2, dropping 0.3", {"coverage": 0.5, **DROPPING},
           {"subnetwork": {"coverage": 0.5, "scheme": "cyclic"}, "dropping": DROPPING_JOB}, True)


def model_of(a):
    """(options of training_study, spec of a job)."""
    if a.model == "llama":
        config = llama_config(a.shape)
        data = text()
        return ({"config": config, "length": a.length, "evaluation-tokens": a.validation_tokens, **data},
                {"model": {"config": config}, "data": {"train": data["train"], "sequenceLength": a.length}})
    options = {"config": resnet_config([4, 4]), **digits(ROOT)}
    job = {"model": {"config": options["config"]}, "data": {"format": "images", "train": options["digits"]}}
    if a.model == "swin":
        del options["config"]
        options["preset"], job["model"] = "swin-micro-cifar", {"preset": "swin-micro-cifar"}
    return options, job


def figures_of(runs, a, spec):
    """Of a job of three steps, counted bytes of the worst worker and bytes a step of the one that sends most; None where it
    was not run."""
    key = {"job": spec, "ranks": a.ranks, "batch": a.batch}
    known = runs.known(key)
    if known is not None and "sent_bytes" in known or runs.only_done:
        return known
    with tempfile.TemporaryDirectory(prefix="tessera-quality-") as folder:
        work = pathlib.Path(folder)
        spec = json.loads(json.dumps(spec))
        if config := spec["model"].pop("config", None):
            (work / "config.json").write_text(json.dumps(config))
            spec["model"]["configPath"] = str(work / "config.json")
        spec |= {"workers": {"count": a.ranks, "batch": a.batch}, "schedule": {"steps": 3, "warmupSteps": 1},
                 "checkpoint": {"exportHuggingFace": False}, "resources": {"cpuThreads": 1}}
        spec.setdefault("subnetwork", {"scheme": "full"})
        (work / "job.json").write_text(json.dumps({"name": "quality", "spec": spec}))
        env = dict(os.environ, TESSERA_STATE_DIR=str(work / "state"))
        run = lambda *args: subprocess.run([BIN / "tessera", *args], env=env, check=False, text=True, capture_output=True)
        try:
            done = run("train", work / "job.json", "--no-sample")
            if done.returncode != 0:
                sys.exit(f"{spec}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            workers = json.loads(run("get", "quality", "-o", "json").stdout)["status"]["workers"]
        finally:
            run("daemon", "stop")
    most = lambda field: max(int(worker[field]) for worker in workers)
    return runs.keep(key, {"peak_bytes": most("memoryPeakBytes"), "sent_bytes": most("trafficBytesPerStep")})


def share(figures, field, of, unit, digits):
    """A figure and what part it is of dense training's."""
    if not figures or not of or field not in figures:
        return "not run"
    return f"{figures[field] / unit:.{digits}f} ({figures[field] / of[field]:.3f})"


def table(a, rows, runs, seeds):
    base, job = model_of(a)
    base |= {"ranks": a.ranks, "batch": a.batch, "steps": a.steps}
    images = a.model != "llama"
    lines = ["| regime | loss | to DDP | steps of equal FLOPs | loss at equal FLOPs | to DDP |" + (" accuracy |" if images else "")
             + " peak tensor MiB (of DDP) | sent MB a step (of DDP) |", "|---|---|---|---|---|---|---|---|" + ("---|" if images else "")]
    dense = dense_figures = None
    for name, options, spec, cheaper in rows:
        wanted = seeds[:1] if name == "FSDP" else seeds
        _, same = best(runs, {**base, **options}, a.rates, wanted)
        matched = []
        if cheaper and not a.same_steps_only:
            _, matched = best(runs, {**base, **options, "flop-matched": None}, a.rates, wanted)
        figures = None if a.no_memory else figures_of(runs, a, {**job, **spec})
        dense, dense_figures = (same, figures) if dense is None else (dense, dense_figures)
        steps = next((str(r["steps"]) for r in finished(matched)), "–")
        show = lambda results: shown(results, wanted=len(wanted))
        cells = [name, show(same), against(same, dense), steps, show(matched) if matched else "–",
                 against(matched, dense) if matched else "–"]
        if images:
            cells.append(shown(same, "accuracy", 3, wanted=len(wanted)))
        cells += [share(figures, "peak_bytes", dense_figures, 2**20, 1), share(figures, "sent_bytes", dense_figures, 1e6, 2)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main():
    numbers = lambda kind: lambda text_: [kind(part) for part in text_.split(",")]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=("llama", "resnet", "swin"), default="llama")
    p.add_argument("--shape", default="128x384x10x8", help="of the LLaMA: HIDDENxFFNxLAYERSxHEADS")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seeds", type=numbers(int), default=[1, 2])
    p.add_argument("--rates", type=numbers(float), default=[2e-3], help="rates of learning, the best of which counts")
    p.add_argument("--coverages", type=numbers(str), default=list(COVERAGES), help=f"of {', '.join(COVERAGES)}")
    p.add_argument("--backward", choices=COVERAGES, default="3/8", help="coverage of backward masking")
    p.add_argument("--only", type=numbers(str), help="DDP, and regimes whose names begin so, in any case")
    p.add_argument("--same-steps-only", action="store_true", help="leave the FLOP-matched runs out")
    p.add_argument("--no-memory", action="store_true", help="leave the jobs of three steps out")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--validation-tokens", type=int, default=65536)
    p.add_argument("--runs", default=str(ROOT / "build/studies/quality.jsonl"), help="what was run is kept here, and not again")
    p.add_argument("--only-done", action="store_true", help="run nothing")
    p.add_argument("--out", help="also write the table to this file")
    a = p.parse_args()
    runs = Runs(a.runs, a.only_done)
    rows = [row for row in regimes(a.coverages, a.backward)
            if not a.only or row[0] == "DDP" or any(row[0].lower().startswith(w.lower()) for w in a.only)]
    arguments = [told(x) for x in sys.argv[1:] if x != "--only-done"]
    lines = []
    for count in range(1, len(a.seeds) + 1):  # a whole table of the first seed before the second
        lines = table(a, rows, runs, a.seeds[:count] if not a.only_done else a.seeds)
    tokens = "" if a.model != "llama" else f", {a.ranks * a.batch * a.length} tokens a step"
    output = "\n".join([f"`./dev bench quality {' '.join(arguments)}`, {machine()}; {a.ranks} workers{tokens}, {a.steps} steps, seeds "
                        f"{','.join(map(str, a.seeds))}.", ""] + lines) + "\n"
    print(output)
    if a.out:
        pathlib.Path(a.out).write_text("# Quality of the regimes\n\n" + output)


if __name__ == "__main__":
    main()
