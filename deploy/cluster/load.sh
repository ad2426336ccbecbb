#!/usr/bin/env bash
# load.sh IMAGE.tar...: puts image archives (docker-archive or OCI archive) into every running node. Pods use
# them with imagePullPolicy Never or IfNotPresent.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
[ $# -gt 0 ] || die "load needs image archives, as 'buildah push IMAGE docker-archive:FILE' writes them"
for archive in "$@"; do [ -s "$archive" ] || die "$archive: no such image archive"; done
loaded=0
for node in "$CLUSTER_RUN"/node*/; do
  is_alive "$node/pid" || continue
  number=${node%/}
  number=${number##*node}
  for archive in "$@"; do
    "$HERE/node.sh" exec "$number" ctr -n k8s.io images import - <"$archive" | sed "s/^/node$number: /"
  done
  loaded=1
done
[ $loaded = 1 ] || die "no node is running; ./dev cluster up starts one"
