#!/usr/bin/env bash
# every regime against PyTorch DDP and FSDP2: step time, memory, bytes on the wire (docs/results/regimes.md)
set -euo pipefail
ninja -C build/release tessera_memory_counter >&2
exec "$TESSERA_PEERS_PYTHON" tests/bench/regimes.py "$@"
