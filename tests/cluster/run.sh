#!/usr/bin/env bash
# run.sh BINARIES LIBTORCH CACHE: brings the cluster up, packs the images, loads them, and runs the cases.
# KEEP=1 leaves the cluster up. The cluster must be down, or be one that KEEP=1 left.
set -euo pipefail
cd "$(dirname "$0")/../.."
binaries=$1 libtorch=$2 images=$3/images
export CLUSTER_NODES=${CLUSTER_NODES:-1} TESSERA_BIN=$PWD/$binaries PYTHONDONTWRITEBYTECODE=1
. deploy/cluster/settings.sh
[ "${KEEP:-}" = 1 ] || trap 'KEEP_LOGS=build/cluster-logs deploy/cluster/down.sh' EXIT
deploy/cluster/build.sh
deploy/image/build.sh "$binaries" "$libtorch" "$images"
is_alive "$CLUSTER_RUN/kube-apiserver.pid" || deploy/cluster/up.sh
deploy/cluster/load.sh "$images/tesserad.tar" "$images/worker.tar" >/dev/null
TESSERA_TAG=$(cat "$images/tag")
export TESSERA_TAG TESSERA_IMAGES=$images
cd tests/cluster
/usr/bin/python3 run.py ${CASES:-chart_test service_test pods_test resources_test dashboards_test}
