#!/usr/bin/env bash
# time of the constrained placement by size (docs/results/planner.md)
set -euo pipefail
ninja -C build/release planner_bench >&2
exec build/release/bin/planner_bench "$@"
