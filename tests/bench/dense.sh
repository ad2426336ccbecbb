#!/usr/bin/env bash
# dense training against PyTorch DDP: step time, memory, bytes on the wire (docs/results/dense.md)
set -euo pipefail
ninja -C build/release tessera_memory_counter >&2
exec "$TESSERA_PEERS_PYTHON" tests/bench/dense.py "$@"
