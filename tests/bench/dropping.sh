#!/usr/bin/env bash
# gradient dropping: losses and bytes by rule, density, residual, layers, workers; its share of a step (docs/results/dropping.md)
set -euo pipefail
ninja -C build/release training_study >&2
exec /usr/bin/python3 tests/bench/dropping.py "$@"
