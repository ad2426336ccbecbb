#!/usr/bin/env bash
# load.sh IMAGE.tar...: puts image archives (docker-archive or OCI archive) into every running node. Pods use
# them with imagePullPolicy Never or IfNotPresent.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
[ $# -gt 0 ] || die "load needs image archives, as 'buildah push IMAGE docker-archive:FILE' writes them"
for archive in "$@"; do [ -s "$archive" ] || die "$archive: no such image archive"; done
import_all() {  # NODE
  for archive in "${@:2}"; do "$HERE/node.sh" exec "$1" ctr -n k8s.io images import - <"$archive" | sed "s/^/node$1: /"; done
}
importing=()
for node in "$CLUSTER_RUN"/node*/; do
  is_alive "$node/pid" || continue
  number=${node%/}
  import_all "${number##*node}" "$@" &
  importing+=($!)
done
[ ${#importing[@]} -gt 0 ] || die "no node is running; ./dev cluster up starts one"
for process in "${importing[@]}"; do wait "$process"; done
