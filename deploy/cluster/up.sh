#!/usr/bin/env bash
# Starts the cluster as root and returns when all nodes are Ready and names resolve. CLUSTER_NODES=2 up.sh
# starts two nodes.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
[ -x "$BIN/kube-apiserver" ] || die "there is no $BIN/kube-apiserver; run build.sh first"
[ "$(id -u)" = 0 ] || die "a cluster needs root: it makes namespaces, cgroups and network links"
[ -e /sys/fs/cgroup/memory/cgroup.sane_behavior ] ||
  die "this cluster needs cgroup version 1 with a hierarchy for each controller, and /sys/fs/cgroup/memory is not one"
! is_alive "$CLUSTER_RUN/kube-apiserver.pid" || die "the cluster is up already"
"$HERE/down.sh"  # what a run left that was cut off
mkdir -p "$CLUSTER_RUN"
echo "$CLUSTER_OWNER" >"$CLUSTER_RUN/owner"
"$HERE/certificates.sh"

# The kubelet changes these for the whole machine; down.sh sets them back.
for name in vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes; do
  echo "$name=$(sysctl -n $name)"
done >"$CLUSTER_RUN/sysctl.before"

ip link add "$CLUSTER_BRIDGE" type bridge
ip addr add "$HOST_ADDRESS/24" dev "$CLUSTER_BRIDGE"
ip link set "$CLUSTER_BRIDGE" up

# Nothing here has to survive a power cut of the machine: without fsync etcd is several times faster.
daemon etcd etcd --data-dir "$CLUSTER_RUN/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 \
  --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
  --initial-cluster default=http://127.0.0.1:23800
# shellcheck disable=SC2086
daemon kube-apiserver kube-apiserver --etcd-servers http://127.0.0.1:23790 \
  --bind-address "$HOST_ADDRESS" --advertise-address "$HOST_ADDRESS" --secure-port 6443 \
  --tls-cert-file "$CERTIFICATES/apiserver.crt" --tls-private-key-file "$CERTIFICATES/apiserver.key" \
  --client-ca-file "$CERTIFICATES/ca.crt" --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
  --kubelet-client-certificate "$CERTIFICATES/apiserver-kubelet-client.crt" \
  --kubelet-client-key "$CERTIFICATES/apiserver-kubelet-client.key" \
  --kubelet-certificate-authority "$CERTIFICATES/ca.crt" --kubelet-preferred-address-types InternalIP \
  --service-account-issuer https://kubernetes.default.svc.cluster.local \
  --service-account-key-file "$CERTIFICATES/service-accounts.pub" \
  --service-account-signing-key-file "$CERTIFICATES/service-accounts.key" \
  --requestheader-client-ca-file "$CERTIFICATES/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
  --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
  --requestheader-extra-headers-prefix X-Remote-Extra- \
  --proxy-client-cert-file "$CERTIFICATES/front-proxy-client.crt" --proxy-client-key-file "$CERTIFICATES/front-proxy-client.key" \
  --service-cluster-ip-range "$CLUSTER_SERVICE_NET.0.0/16" --allow-privileged=true $CLUSTER_APISERVER_ARGS

preparing=()
for ((number = 1; number <= CLUSTER_NODES; number++)); do
  "$HERE/node.sh" prepare $number &
  preparing+=($!)
done
await 90 "the API server" curl -sf --cacert "$CERTIFICATES/ca.crt" "$API/readyz"

# Permissions that kubeadm would give; the default client rate would delay the controllers' start by 5 s.
# shellcheck disable=SC2086
daemon kube-controller-manager kube-controller-manager --bind-address 127.0.0.1 --leader-elect=false \
  --kubeconfig "$CERTIFICATES/kube-controller-manager.kubeconfig" \
  --authentication-kubeconfig "$CERTIFICATES/kube-controller-manager.kubeconfig" \
  --authorization-kubeconfig "$CERTIFICATES/kube-controller-manager.kubeconfig" \
  --use-service-account-credentials --service-account-private-key-file "$CERTIFICATES/service-accounts.key" \
  --root-ca-file "$CERTIFICATES/ca.crt" --cluster-signing-cert-file "$CERTIFICATES/ca.crt" \
  --cluster-signing-key-file "$CERTIFICATES/ca.key" --kube-api-qps 200 --kube-api-burst 300 \
  --node-monitor-grace-period "${CLUSTER_FAILURE_SECONDS}s" $CLUSTER_CONTROLLERS_ARGS
# shellcheck disable=SC2086
daemon kube-scheduler kube-scheduler --bind-address 127.0.0.1 --leader-elect=false \
  --kubeconfig "$CERTIFICATES/kube-scheduler.kubeconfig" \
  --authentication-kubeconfig "$CERTIFICATES/kube-scheduler.kubeconfig" \
  --authorization-kubeconfig "$CERTIFICATES/kube-scheduler.kubeconfig" $CLUSTER_SCHEDULER_ARGS

for process in "${preparing[@]}"; do wait "$process"; done
kubectl create clusterrolebinding tessera-cluster-proxy --clusterrole system:node-proxier --user system:kube-proxy >/dev/null
sed "s/CLUSTER_DNS/$CLUSTER_SERVICE_NET.0.10/" "$HERE/dns.yaml" | kubectl apply -f - >/dev/null
starting=()
for ((number = 1; number <= CLUSTER_NODES; number++)); do
  "$HERE/node.sh" start $number &
  starting+=($!)
done
for process in "${starting[@]}"; do wait "$process"; done
kubectl -n kube-system rollout status deployment/dns --timeout=90s >/dev/null
say "the cluster is up after $SECONDS s; export KUBECONFIG=$KUBECONFIG PATH=$BIN:\$PATH"
