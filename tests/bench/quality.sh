#!/usr/bin/env bash
# subnetworks against dense training and other regularisers: loss at equal steps and equal FLOPs, memory, bytes (docs/results/quality.md)
set -euo pipefail
ninja -C build/release training_study >&2
exec /usr/bin/python3 tests/bench/quality.py "$@"
