"""Runs of training_study, kept one a line in a file of JSON.

What was run before with the same options is not run again, so a study can be stopped at any time, made longer by more seeds
or rows, and shown before it is complete.
"""
import datetime
import hashlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

from study_models import CACHE

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("TESSERA_TRAINING_STUDY", ROOT / "build/release/bin/training_study"))
DIVERGED = 3  # exit status of training_study


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.strip() or "unknown"


def told(path):
    """A path as it is kept: the same wherever the repository and the cache are."""
    return str(path).replace(str(ROOT), ".").replace(str(CACHE), "CACHE")


class Runs:
    """Results by options. path: the file; only_done: nothing is run that is not in it."""

    def __init__(self, path, only_done=False):
        self.path, self.only_done, self.commit = pathlib.Path(path), only_done, commit()
        self.results, self.read = {}, 0

    def _catch_up(self):  # with other processes too
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8") as file:
            file.seek(self.read)
            while (line := file.readline()).endswith("\n"):
                self.read = file.tell()
                run = json.loads(line)
                self.results[self._key(run["options"])] = run["result"]

    @staticmethod
    def _key(options):
        return told(json.dumps(options, sort_keys=True))

    def keep(self, options, result):
        line = json.dumps({"options": json.loads(self._key(options)), "result": result, "commit": self.commit,
                           "date": str(datetime.date.today())}) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
        self._catch_up()
        return result

    def known(self, options):
        self._catch_up()
        return self.results.get(self._key(options))

    def __call__(self, options):
        """options of training_study; None is a flag, a dict a config.json. None if it was not run; "diverged" in the
        result of a run whose loss became infinite."""
        if (result := self.known(options)) is not None or self.only_done:
            return result
        print(json.dumps({k: v for k, v in options.items() if k not in ("train", "validation", "config")}),
              file=sys.stderr, flush=True)
        command = [str(PROGRAM)]
        for name, value in options.items():
            if isinstance(value, dict):
                text = json.dumps(value)
                value = ROOT / f"build/studies/{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
                value.parent.mkdir(parents=True, exist_ok=True)
                value.write_text(text)
            command += [f"--{name}"] + ([] if value is None else [str(value)])
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, TESSERA_GOLDEN=str(ROOT / "tests/golden")))
        if done.returncode == DIVERGED:
            result = {"diverged": True}
        elif done.returncode != 0:
            sys.exit(f"training_study ended with status {done.returncode}: {' '.join(command)}")
        else:
            result = json.loads(done.stdout.strip().splitlines()[-1])
        return self.keep(options, result)


def finished(results):
    return [r for r in results if r is not None and "diverged" not in r]


def mean(results, field="validation_loss"):
    return statistics.mean(r[field] for r in results)


def shown(results, field="validation_loss", digits=4, wanted=1):
    """Mean and standard deviation, and how many seeds where it is fewer than wanted."""
    if any(r is not None and "diverged" in r for r in results):
        return "diverged"
    values = [r[field] for r in finished(results)]
    if not values:
        return "not run"
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}" + (f" ({len(values)} of {wanted} seeds)" if len(values) < wanted else "")


def against(results, reference, field="validation_loss"):
    """Mean over the seeds that both have of how much larger it is, in per cent."""
    pairs = [(r[field], d[field]) for r, d in zip(results, reference) if finished([r]) and finished([d])]
    return f"{100 * statistics.mean(r / d - 1 for r, d in pairs):+.2f} %" if pairs else "–"


def machine():
    with open("/proc/cpuinfo", encoding="ascii") as f:
        cpu = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    return f"{datetime.date.today()}, {cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def best(runs, options, rates, seeds):
    """The rate of learning with the lowest loss on the first seed, None if none has one, and the results of all seeds with it
    (None: not run)."""
    first = {rate: runs({**options, "learning-rate": rate, "seed": seeds[0]}) for rate in rates}
    losses = {rate: r["validation_loss"] for rate, r in first.items() if finished([r])}
    if not losses:
        return None, [first[rates[0]]] + [None] * (len(seeds) - 1)
    rate = min(losses, key=losses.get)
    return rate, [first[rate]] + [runs({**options, "learning-rate": rate, "seed": seed}) for seed in seeds[1:]]
