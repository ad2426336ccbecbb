#!/usr/bin/env bash
# Ends every process that up.sh and node.sh started (by their recorded ids) and removes what they made:
# namespaces, cgroups, bridge, routes and $CLUSTER_RUN. KEEP_LOGS=FOLDER keeps a copy of the logs.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
if [ -n "${KEEP_LOGS:-}" ] && [ -d "$CLUSTER_RUN" ]; then
  KEEP_LOGS=$(realpath -m "$KEEP_LOGS")
  mkdir -p "$KEEP_LOGS"
  (cd "$CLUSTER_RUN" && find . -maxdepth 2 -name '*.log' -exec cp --parents {} "$KEEP_LOGS" \;)
fi
shopt -s nullglob
files=("$CLUSTER_RUN"/node*/pid "$CLUSTER_RUN"/*.pid)
# A node's first process takes all others of its PID namespace with it.
for file in "${files[@]}"; do if is_alive "$file"; then kill -9 "$pid" 2>/dev/null || true; fi; done
for file in "${files[@]}"; do while is_alive "$file"; do sleep 0.05; done; done
for link in /sys/class/net/"$CLUSTER_BRIDGE"*; do ip link del "${link##*/}" 2>/dev/null || true; done
for group in /sys/fs/cgroup/*/"$CGROUP"; do
  # A killed pod's processes take a moment to leave.
  for _ in $(seq 50); do find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null && break || sleep 0.1; done
done
if [ -s "$CLUSTER_RUN/sysctl.before" ]; then sysctl -qp "$CLUSTER_RUN/sysctl.before"; fi
rm -rf "$CLUSTER_RUN"
