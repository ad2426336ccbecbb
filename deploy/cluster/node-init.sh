#!/usr/bin/env bash
# The first process of node I, started by node.sh in mount, network, PID, UTS and IPC namespaces of its own.
# When it ends, all that the node runs ends too.
set -euo pipefail
number=$1
. "$(dirname "$0")/settings.sh"
files=$CLUSTER_RUN/node$number
name=node$number
address=$CLUSTER_NET.$((10 + number))

# What containerd, the kubelet and CNI write stays with this node.
mount --make-rshared /
mkdir -p "$files"/{lib,log}
mount --bind "$files/lib" /var/lib
mount --bind "$files/log" /var/log
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/{kubelet,containerd,cni/net.d}
hostname "$name"

# Cgroups left by a node that was powered off are empty, but each delays the kubelet.
for hierarchy in /sys/fs/cgroup/*/; do
  [ -e "$hierarchy/cgroup.sane_behavior" ] || continue  # version 1 only
  group=$hierarchy/$CGROUP/$name
  [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  mkdir -p "$group"
  [ -e "$hierarchy/cpuset.cpus" ] || continue
  for folder in "$hierarchy/$CGROUP" "$group"; do  # a new cpuset has no processors
    for file in cpuset.cpus cpuset.mems; do cat "$hierarchy/$file" >"$folder/$file"; done
  done
done

until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done  # node.sh moves it here
ip link set lo up
ip addr add "$address/24" dev eth0
ip link set eth0 up
# There is no default route: nothing sent by a pod leaves this machine. kube-proxy rewrites Service addresses
# after the routing decision, which therefore needs some route.
ip route add "$CLUSTER_SERVICE_NET.0.0/16" via "$HOST_ADDRESS"
sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
for ((other = 1; other <= 8; other++)); do
  [ "$other" = "$number" ] || ip route add "$CLUSTER_POD_NET.$other.0/24" via "$CLUSTER_NET.$((10 + other))"
done

cat >/var/lib/cni/net.d/pods.conflist <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$CLUSTER_POD_NET.$number.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON

cat >/var/lib/containerd.toml <<TOML
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true  # works without CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/var/lib/cni/net.d"
TOML

cat >/var/lib/kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP/$name
address: $address
healthzBindAddress: 127.0.0.1
tlsCertFile: $CERTIFICATES/$name.crt
tlsPrivateKeyFile: $CERTIFICATES/$name.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $CERTIFICATES/ca.crt}}
authorization: {mode: Webhook}
clusterDomain: cluster.local
clusterDNS: [$CLUSTER_SERVICE_NET.0.10]
resolvConf: ""
failSwapOn: false
nodeLeaseDurationSeconds: 12  # a heartbeat every 3 s
serializeImagePulls: false
# Loaded images cannot be pulled again, and a full disk is the machine's business.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%, imagefs.inodesFree: 1%}
YAML

cat >/var/lib/kube-proxy.yaml <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $CLUSTER_POD_NET.0.0/16
clientConnection: {kubeconfig: $CERTIFICATES/kube-proxy.kubeconfig}
bindAddress: $address
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}  # leaves the machine's limits alone
YAML

containerd --config /var/lib/containerd.toml >"$files/containerd.log" 2>&1 &
until [ -e "$files/go" ]; do sleep 0.05; done  # images are in and the API answers
kube-proxy --config /var/lib/kube-proxy.yaml --hostname-override "$name" >"$files/kube-proxy.log" 2>&1 &
# shellcheck disable=SC2086
kubelet --config /var/lib/kubelet.yaml --kubeconfig "$CERTIFICATES/$name.kubeconfig" --hostname-override "$name" \
  --node-ip "$address" $CLUSTER_KUBELET_ARGS >"$files/kubelet.log" 2>&1 &
trap 'kill -9 -1' TERM  # everything in this PID namespace
wait
