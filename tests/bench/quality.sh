#!/usr/bin/env bash
# subnetworks against dense training and other regularisers: validation loss at equal steps and equal FLOPs
set -euo pipefail
exec "$TESSERA_PEERS_PYTHON" tests/bench/quality.py "$@"
