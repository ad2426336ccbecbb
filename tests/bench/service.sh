#!/usr/bin/env bash
# the service under load: lists, submissions, watchers, worker streams, start-up
set -euo pipefail
ulimit -n "$(ulimit -Hn)"
exec "$TESSERA_SERVICE_PEERS_PYTHON" tests/bench/service.py "$@"
