#!/usr/bin/env bash
# predicted against measured peak memory over whole jobs (docs/results/memory.md)
set -euo pipefail
exec /usr/bin/python3 tests/bench/memory.py "$@"
