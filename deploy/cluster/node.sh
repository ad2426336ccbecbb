#!/usr/bin/env bash
# node.sh start I              start node I (1 to 8), new or stopped; a stopped one keeps its state
# node.sh stop I               power it off: all that it runs ends at once
# node.sh rate I 100mbit|off   limit its network in both directions
# node.sh unplug I, plug I     take its network away, give it back
# node.sh exec I COMMAND...    run a command inside
set -euo pipefail
. "$(dirname "$0")/settings.sh"
[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0"; exit 2; }
action=$1 number=$2
shift 2
case "$number" in [1-8]) ;; *) die "node '$number': nodes are numbered 1 to 8" ;; esac
files=$CLUSTER_RUN/node$number
port=$CLUSTER_BRIDGE-$number

inside() {
  is_alive "$files/pid" || die "node$number is not running"
  nsenter -t "$pid" -m -n -p -u -i "$@"
}

# Namespaces, network, containerd and images: what can be done before the API answers.
prepare() {
  ! is_alive "$files/pid" || return 0
  mkdir -p "$files"
  rm -f "$files/go"
  "$HERE/certificates.sh" "$number"
  setsid unshare --mount --net --pid --uts --ipc --fork --mount-proc "$HERE/node-init.sh" "$number" >>"$files/init.log" 2>&1 </dev/null &
  local outer=$! archive
  until pid=$(pgrep -P $outer); do
    kill -0 $outer 2>/dev/null || die "node$number did not start; see $files/init.log"
    sleep 0.02
  done
  remember "$files/pid" "$pid"
  ip link add "$port" type veth peer name eth0 netns "$pid"
  ip link set "$port" master "$CLUSTER_BRIDGE" up
  ip route replace "$CLUSTER_POD_NET.$number.0/24" via "$CLUSTER_NET.$((10 + number))"
  # This machine too reaches Services, through the first node.
  [ "$number" != 1 ] || ip route replace "$CLUSTER_SERVICE_NET.0.0/16" via "$CLUSTER_NET.11"
  await 60 "containerd on node$number" inside ctr version
  if [ ! -e "$files/lib/images-loaded" ]; then
    for archive in "$CLUSTER_CACHE"/images/*.tar; do inside ctr -n k8s.io images import - <"$archive" >/dev/null; done
    touch "$files/lib/images-loaded"
  fi
}

limit() {  # RATE: what the node sends leaves by its eth0, what it receives by the bridge's port
  inside tc qdisc replace dev eth0 root tbf rate "$1" burst 256kb latency 50ms
  tc qdisc replace dev "$port" root tbf rate "$1" burst 256kb latency 50ms
}

# The API takes a node that was powered off for Ready until its heartbeats are missed: what counts is one of the new kubelet.
ready_since() {  # TIME, or nothing
  local state
  state=$(kubectl get node "node$number" -o jsonpath='{range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}') &&
    [[ $state = "True "* && ! ${state#True } < $1 ]]
}

case $action in
  prepare) prepare ;;
  start)
    prepare
    since=""
    [ -e "$files/go" ] || since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    touch "$files/go"
    await 180 "node$number to be Ready" ready_since "$since" ;;
  stop)
    is_alive "$files/pid" || die "node$number is not running"
    kill -9 "$pid"
    while is_alive "$files/pid"; do sleep 0.05; done
    rm -f "$files/pid"
    ip link del "$port" 2>/dev/null || true ;;
  rate)
    case "${1:-}" in
      '') die "rate needs a bandwidth like 100mbit, or off" ;;
      off) inside tc qdisc del dev eth0 root; tc qdisc del dev "$port" root ;;
      *) limit "$1" ;;
    esac ;;
  unplug) ip link set "$port" down ;;
  plug) ip link set "$port" up ;;
  exec) inside "$@" ;;
  *) die "unknown action '$action'; node.sh without arguments lists them" ;;
esac
