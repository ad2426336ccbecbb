#!/usr/bin/env bash
# run.sh BINARIES LIBTORCH CACHE: brings the cluster up, packs the images, loads them, and runs the cases of CASES or
# all. Closes with "N passed, N failed", and takes the cluster down whatever ends it. KEEP=1 leaves the cluster up, and
# takes over one that is up.
set -euo pipefail
cd "$(dirname "$0")/../.."
binaries=$1 libtorch=$2 images=$3/images
export CLUSTER_NODES=${CLUSTER_NODES:-2} TESSERA_BIN=$PWD/$binaries PYTHONDONTWRITEBYTECODE=1
. deploy/cluster/settings.sh

# The cases undo what they began before their cluster goes.
clean_up() {
  if is_alive "$CLUSTER_RUN/tests.pid"; then
    kill -TERM "$pid"
    timeout 90 tail --pid="$pid" -f /dev/null || true
  fi
  KEEP_LOGS=build/cluster-logs deploy/cluster/down.sh
}

# Waits for the end of this script, also one that no trap sees, and cleans up unless that is done.
guard() {  # PID OF THE SCRIPT
  tail --pid="$1" -f /dev/null
  exec 9>"$CLUSTER_CACHE/lock"
  flock 9
  [ "$(cat "$CLUSTER_RUN/owner" 2>/dev/null)" != "$CLUSTER_OWNER" ] || clean_up 9>&-
}

if [ "${KEEP:-}" != 1 ]; then
  if [[ "$(cat "$CLUSTER_RUN/owner" 2>/dev/null)" = tests* ]]; then deploy/cluster/down.sh; fi
  ! is_alive "$CLUSTER_RUN/kube-apiserver.pid" || die "a cluster is up; ./dev cluster down ends it, KEEP=1 makes the tests use it"
  export CLUSTER_OWNER="tests $$"
  export -f guard clean_up is_alive start_time
  setsid bash -c "guard $$" </dev/null >/dev/null 2>&1 &
  disown
  trap clean_up EXIT
  trap 'exit 143' TERM INT HUP
fi
rm -rf build/cluster-logs
deploy/cluster/build.sh
deploy/image/build.sh "$binaries" "$libtorch" "$images"
is_alive "$CLUSTER_RUN/kube-apiserver.pid" || deploy/cluster/up.sh
say "loading the images"
deploy/cluster/load.sh "$images"/{tesserad,worker,agent}.tar >/dev/null
TESSERA_TAG=$(cat "$images/tag")
export TESSERA_TAG
# In the background: a signal is heard at once.
(cd tests/cluster && exec /usr/bin/python3 run.py ${CASES:-chart_test service_test pods_test resources_test nodes_test replicas_test dashboards_test}) &
remember "$CLUSTER_RUN/tests.pid" $!
wait $!
