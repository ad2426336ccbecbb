#!/usr/bin/env bash
# Can this machine host the cluster? Prints nothing and succeeds, or prints in one sentence why not and exits 3.
# Tries what the cluster will do, in namespaces and control groups of its own, and leaves nothing.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
no() { echo "$*"; exit 3; }

[ "$(id -u)" = 0 ] || no "a cluster needs root: it makes namespaces, control groups and network links"
[ "$(uname -m)" = x86_64 ] || no "a cluster needs x86_64, and this is $(uname -m)"
for controller in cpu cpuset memory pids devices freezer; do
  hierarchy=/sys/fs/cgroup/$controller
  [ -e "$hierarchy/cgroup.sane_behavior" ] ||
    no "a cluster needs cgroup version 1 with a hierarchy for each controller, and $hierarchy is not one"
  group=$hierarchy/tessera-probe-$$
  mkdir "$group" 2>/dev/null || no "control groups cannot be made in $hierarchy"
  rmdir "$group"
done
unshare --mount --net --pid --uts --ipc --fork --mount-proc true 2>/dev/null || no "namespaces cannot be made"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work"/{lower,upper,work,merged}
unshare --mount bash -c 'mount --make-rshared / && mount -t tmpfs tmpfs /run && mount --bind "$1/lower" "$1/lower" &&
  mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged"' - "$work" 2>/dev/null ||
  no "file systems cannot be mounted: tmpfs, bind mounts and overlays are needed"
! command -v ip >/dev/null || unshare --net bash -c 'ip link add bridge0 type bridge && ip link add probe0 type veth peer name probe1' 2>/dev/null ||
  no "bridges and pairs of network links cannot be made"
! command -v nft >/dev/null || unshare --net nft add table ip probe 2>/dev/null || no "nftables does not work"
if command -v ip >/dev/null; then
  taken=$(ip -4 route show | grep -v " dev $CLUSTER_BRIDGE" | grep -E "^(${CLUSTER_NET%.*}|$CLUSTER_POD_NET|$CLUSTER_SERVICE_NET)\." | head -1 || true)
  [ -z "$taken" ] || no "a network of this machine has the cluster's addresses: $taken"
fi
memory=$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
[ "$memory" -ge 4000 ] || no "a cluster needs 4 GB of free memory, and there are $memory MB"
mkdir -p "$CLUSTER_CACHE"
disk=$(df -Pm "$CLUSTER_CACHE" | awk 'NR == 2 {print $4}')
[ "$disk" -ge 8000 ] || no "a cluster needs 8 GB of free disk in $CLUSTER_CACHE, and there are $disk MB"
