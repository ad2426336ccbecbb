#!/usr/bin/env bash
# gradient dropping: losses, bytes and memory by rule, density, residual (docs/results/dropping.md)
set -euo pipefail
ninja -C build/release dropping_study >&2
exec /usr/bin/python3 tests/bench/dropping.py "$@"
