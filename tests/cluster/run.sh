#!/usr/bin/env bash
# run.sh BINARIES LIBTORCH CACHE: brings the cluster up, packs the images, loads them, and runs the cases of CASES or
# all. Closes with "N passed, N failed". KEEP=1 leaves the cluster up, and takes over one that is up.
set -euo pipefail
cd "$(dirname "$0")/../.."
binaries=$1 libtorch=$2 images=$3/images
export CLUSTER_NODES=${CLUSTER_NODES:-2} TESSERA_BIN=$PWD/$binaries PYTHONDONTWRITEBYTECODE=1
. deploy/cluster/settings.sh
own=$CLUSTER_RUN/of-the-tests  # whose cluster it is: ours is taken down, also one that a run left behind
if [ "${KEEP:-}" != 1 ]; then
  if [ -e "$own" ]; then deploy/cluster/down.sh; fi
  ! is_alive "$CLUSTER_RUN/kube-apiserver.pid" || die "a cluster is up; ./dev cluster down ends it, KEEP=1 makes the tests use it"
  trap 'KEEP_LOGS=build/cluster-logs deploy/cluster/down.sh' EXIT
fi
rm -rf build/cluster-logs
deploy/cluster/build.sh
deploy/image/build.sh "$binaries" "$libtorch" "$images"
is_alive "$CLUSTER_RUN/kube-apiserver.pid" || { deploy/cluster/up.sh; touch "$own"; }
say "loading the images"
deploy/cluster/load.sh "$images"/{tesserad,worker,agent}.tar >/dev/null
TESSERA_TAG=$(cat "$images/tag")
export TESSERA_TAG
cd tests/cluster
/usr/bin/python3 run.py ${CASES:-chart_test service_test pods_test resources_test nodes_test dashboards_test}
