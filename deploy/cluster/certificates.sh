#!/usr/bin/env bash
# certificates.sh        makes the certificates and kubeconfigs of the control plane, where they are missing
# certificates.sh I      makes those of node I
set -euo pipefail
. "$(dirname "$0")/settings.sh"
mkdir -p "$CERTIFICATES"
cd "$CERTIFICATES"
umask 077

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null ||
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null; }

authority() {  # NAME
  [ ! -s "$1.crt" ] || return 0
  key "$1"
  openssl req -x509 -new -key "$1.key" -subj "/CN=$1" -days 3650 -out "$1.crt" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

# A client's certificate; with alternative names it is a server's too.
certificate() {  # AUTHORITY NAME SUBJECT [ALTERNATIVE-NAMES]
  [ ! -s "$2.crt" ] || return 0
  local extensions="keyUsage=critical,digitalSignature"$'\n'"extendedKeyUsage=clientAuth"
  [ -z "${4:-}" ] || extensions+=",serverAuth"$'\n'"subjectAltName=$4"
  key "$2"
  openssl req -new -key "$2.key" -subj "$3" |
    openssl x509 -req -CA "$1.crt" -CAkey "$1.key" -set_serial "0x$(openssl rand -hex 8)" -days 3650 \
      -extfile <(echo "$extensions") -out "$2.crt" 2>/dev/null
}

kubeconfig() {  # CERTIFICATE FILE
  cat >"$2" <<YAML
apiVersion: v1
kind: Config
current-context: tessera
contexts: [{name: tessera, context: {cluster: tessera, user: $1}}]
clusters: [{name: tessera, cluster: {server: "$API", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
YAML
}

if [ $# = 1 ]; then
  certificate ca "node$1" "/O=system:nodes/CN=system:node:node$1" "IP:$CLUSTER_NET.$((10 + $1)),DNS:node$1"
  kubeconfig "node$1" "node$1.kubeconfig"
  exit
fi

authority ca
authority front-proxy-ca
[ -s service-accounts.key ] || key service-accounts
openssl pkey -in service-accounts.key -pubout -out service-accounts.pub
certificate front-proxy-ca front-proxy-client /CN=front-proxy-client
certificate ca apiserver /CN=kube-apiserver \
  "IP:$HOST_ADDRESS,IP:$CLUSTER_SERVICE_NET.0.1,IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc,DNS:kubernetes.default"
certificate ca apiserver-kubelet-client /O=system:masters/CN=apiserver-kubelet-client
certificate ca admin /O=system:masters/CN=admin
kubeconfig admin "$KUBECONFIG"
for component in kube-controller-manager kube-scheduler kube-proxy; do
  certificate ca "$component" "/CN=system:$component"
  kubeconfig "$component" "$component.kubeconfig"
done
