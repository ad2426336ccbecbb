#!/usr/bin/env python3
"""Checks which folder includes which, and prints `N files, N violations`.

The table is the design: a folder may include itself and what its row lists. Third-party headers with a
restricted circle of users (LibTorch, c10d, listening sockets) are checked as well.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROTO = "proto/tessera/v1"
ALLOWED = {
    "base": [],
    PROTO: ["base"],
    "scheduler/plan": ["base"],
    "scheduler/job": ["base"],
    "scheduler/wire": ["base", PROTO, "scheduler/plan"],
    "scheduler/store": ["base", PROTO, "scheduler/kube"],
    "scheduler/kube": ["base"],
    "scheduler/launch": ["base", PROTO, "scheduler/plan", "scheduler/wire", "scheduler/kube"],
    "scheduler/controller": ["base", PROTO, "scheduler"],
    "services": ["base", PROTO, "scheduler", "services"],
    "worker/nn": ["base"],
    "worker/models": ["base", "worker/nn", "scheduler/plan/model_shape.h"],
    "worker/data": ["base", "worker/models/model.h", "worker/eval/commands.h"],
    "worker/profile": ["base", "worker/nn/autocast.h", "worker/models", "worker/parallel/checkpointed_block.h", "scheduler/plan"],
    "worker/checkpoint": ["base", "worker/models", "worker/comm", "worker/parallel", "scheduler/plan"],
    "worker/eval": ["base", PROTO, "worker", "scheduler/plan", "scheduler/wire"],
    "worker/comm": ["base"],
    "worker/kernels": ["base"],
    "worker/device": ["base", PROTO, "worker/comm", "worker/dropping", "worker/nn", "worker/models/model.h"],
    "worker/cuda": ["base", "worker/comm", "worker/device", "worker/dropping", "worker/kernels"],
    "worker/dropping": ["base", "worker/kernels", "worker/nn/simd.h", "worker/comm", "worker/parallel", "worker/models", "scheduler/plan"],
    "worker/parallel": ["base", "worker/nn/autocast.h", "worker/models", "worker/comm", "scheduler/plan"],
    "worker/control": ["base", PROTO, "worker/comm", "worker/train", "worker/data", "worker/models", "worker/profile",
                       "worker/dropping",
                       "scheduler/plan", "scheduler/wire"],
    "worker/train": ["base", PROTO, "worker", "scheduler/plan", "scheduler/wire"],
    "worker": ["base", PROTO, "worker", "scheduler/plan", "scheduler/wire"],
}

# Third-party headers and the folders that may see them.
TORCH = re.compile(r"^(torch|ATen|c10)/")
C10D = re.compile(r"^torch/csrc/distributed/")
SOCKETS = re.compile(r"^(grpcpp/|boost/(asio|beast)|prometheus/)")
PURE = ("scheduler/plan", "scheduler/job")


def folder_of(path):
    """The longest row of the table that holds this file."""
    name = path.relative_to(ROOT).as_posix()
    rows = [row for row in ALLOWED if name.startswith(row + "/")]
    return max(rows, key=len) if rows else None


def violations(path):
    row = folder_of(path)
    if row is None:
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not match:
            continue
        header = match.group(2)
        where = f"{path.relative_to(ROOT)}:{number}: {header}"
        if TORCH.match(header) and not row.startswith("worker"):
            yield f"{where}: only worker/ may include LibTorch"
        if C10D.match(header) and "distributed" in header and row != "worker/comm":
            yield f"{where}: only worker/comm may include c10d"
        if SOCKETS.match(header) and row.startswith("scheduler") and row != "scheduler/kube":
            yield f"{where}: the scheduler has no sockets and no metrics library"
        generated = header.startswith("tessera/v1/")
        if row in PURE and (generated or header in ("thread", "fstream", "filesystem") or header.startswith("spdlog/")):
            yield f"{where}: {row} is pure"
        target = PROTO + "/x" if generated else header
        if not (ROOT / header).exists() and not generated:
            continue
        allowed = ALLOWED[row] + [row]
        if not any(target == entry or target.startswith(entry + "/") for entry in allowed):
            yield f"{where}: {row} may include {', '.join(allowed)}"


def main():
    files = [p for folder in ("base", "proto", "scheduler", "services", "worker")
             for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".h", ".cc", ".cu")]
    found = [v for path in files for v in violations(path)]
    for violation in found:
        print(violation)
    print(f"{len(files)} files, {len(found)} violations")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
