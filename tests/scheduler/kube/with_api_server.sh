#!/usr/bin/env bash
# with_api_server.sh COMMAND...: runs the command with KUBECONFIG of a real API server (etcd and kube-apiserver,
# nothing else) that ends with it. It forgets old versions after a second, so that watches become too old. 77, which is "skipped", where the programs of deploy/cluster were not built.
set -euo pipefail
bin=${TESSERA_CLUSTER_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera/cluster/bin}
if [ ! -x "$bin/etcd" ] || [ ! -x "$bin/kube-apiserver" ]; then
	echo "no $bin/etcd and kube-apiserver: deploy/cluster/build.sh makes them" >&2
	exit 77
fi
run=$(mktemp -d)
pids=()
finish() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$run"
}
trap finish EXIT
# Ports that were free a moment ago: these programs can't be told to take any.
read -r client peer secure < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(3)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))')
"$bin/etcd" --data-dir "$run/etcd" --unsafe-no-fsync --log-level error \
	--listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
	--listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
	--initial-cluster "default=http://127.0.0.1:$peer" >"$run/etcd.log" 2>&1 &
pids+=($!)
token=$(openssl rand -hex 16)
echo "$token,admin,1,system:masters" >"$run/tokens"
openssl genrsa -out "$run/sa.key" 2048 2>/dev/null
openssl rsa -in "$run/sa.key" -pubout -out "$run/sa.pub" 2>/dev/null
"$bin/kube-apiserver" --etcd-servers "http://127.0.0.1:$client" --etcd-compaction-interval 1s --watch-cache=false --bind-address 127.0.0.1 --secure-port "$secure" \
	--cert-dir "$run/pki" --token-auth-file "$run/tokens" --authorization-mode RBAC \
	--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$run/sa.pub" \
	--service-account-signing-key-file "$run/sa.key" --service-cluster-ip-range 10.0.0.0/24 \
	--advertise-address 127.0.0.1 --disable-admission-plugins ServiceAccount >"$run/apiserver.log" 2>&1 &
pids+=($!)
for ((i = 0; i < 600; i++)); do
	if curl -sf --cacert "$run/pki/apiserver.crt" -H "Authorization: Bearer $token" \
		"https://127.0.0.1:$secure/api/v1/namespaces/default" >/dev/null 2>&1; then break; fi
	if ! kill -0 "${pids[1]}" 2>/dev/null; then
		tail -5 "$run/apiserver.log" >&2
		exit 1
	fi
	sleep 0.2
done
cat >"$run/kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$secure", certificate-authority: pki/apiserver.crt}}]
users: [{name: test, user: {token: $token}}]
END
KUBECONFIG=$run/kubeconfig "$@"
