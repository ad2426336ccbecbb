# shellcheck shell=bash disable=SC2034
# Settings of the one-machine cluster and the few functions that its scripts share. Every setting can be
# given in the environment; give all scripts the same ones.
: "${CLUSTER_CACHE:=${TESSERA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera}/cluster}"  # programs and images; worth keeping
: "${CLUSTER_RUN:=$CLUSTER_CACHE/run}"   # all that a running cluster writes; down.sh removes it
: "${CLUSTER_NODES:=1}"                  # nodes that up.sh starts, 1 to 8
: "${CLUSTER_BRIDGE:=tessera0}"          # bridge between this machine and the nodes
: "${CLUSTER_NET:=10.98.0}"              # its /24: .1 is this machine, .10+I is node I
: "${CLUSTER_POD_NET:=10.97}"            # /16 of pods: node I has .I.0/24
: "${CLUSTER_SERVICE_NET:=10.96}"        # /16 of Services: .0.1 is the API, .0.10 DNS
: "${CLUSTER_OWNER:=people}"             # who started it; tests take down only their own
: "${CLUSTER_FAILURE_SECONDS:=12}"       # silence after which a node counts as lost (Kubernetes' own default is 50)
: "${CLUSTER_APISERVER_ARGS:=}" "${CLUSTER_CONTROLLERS_ARGS:=}" "${CLUSTER_SCHEDULER_ARGS:=}" "${CLUSTER_KUBELET_ARGS:=}"

KUBERNETES_VERSION=1.34.4
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BIN=$CLUSTER_CACHE/bin
CERTIFICATES=$CLUSTER_RUN/certificates
HOST_ADDRESS=$CLUSTER_NET.1
API=https://$HOST_ADDRESS:6443
CGROUP=tessera-cluster  # above the cgroups of all pods, in each cgroup v1 hierarchy
export CLUSTER_CACHE CLUSTER_RUN CLUSTER_NODES
export KUBECONFIG=$CLUSTER_RUN/kubeconfig PATH=$BIN:$PATH
# No proxy stands between this machine and its cluster.
case ",${NO_PROXY:-}," in
  *",$HOST_ADDRESS,"*) ;;
  *) export NO_PROXY=$HOST_ADDRESS,$CLUSTER_POD_NET.0.0/16,$CLUSTER_SERVICE_NET.0.0/16,127.0.0.1,localhost${NO_PROXY:+,$NO_PROXY} ;;
esac
export no_proxy=$NO_PROXY

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'cluster: %s\n' "$*" >&2; exit 1; }

# A process is known by its id and the time it started (ticks since boot): after a reboot, or when the id was
# used again, a pid file names nobody instead of a stranger.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
remember() { echo "$2 $(start_time "$2")" >"$1"; }  # FILE PID
is_alive() {  # FILE; sets $pid
  local since
  read -r pid since 2>/dev/null <"$1" && [ -n "$since" ] && [ "$(start_time "$pid")" = "$since" ]
}

# Starts a daemon in a session of its own, with $CLUSTER_RUN/NAME.pid and .log.
daemon() {  # NAME COMMAND...
  local name=$1
  shift
  setsid "$@" >"$CLUSTER_RUN/$name.log" 2>&1 </dev/null &
  remember "$CLUSTER_RUN/$name.pid" $!
}

# Tries a command until it succeeds.
await() {  # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt "$end" ] || die "gave up waiting for $what; logs are in $CLUSTER_RUN"
    sleep 0.1
  done
}
