#!/usr/bin/env bash
# what an idle node agent costs: processor time, memory
set -euo pipefail
exec /usr/bin/python3 tests/bench/agent.py "${TESSERA_BIN:-build/release/bin}" "$@"
