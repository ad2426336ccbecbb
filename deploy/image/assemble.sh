#!/usr/bin/env bash
# assemble.sh OUT BINARIES LIBTORCH: the root folders of the images, of nothing but our programs and the libraries
# they link to: no shell, no package manager. Beside each, and inside it, an SPDX document of what it holds.
#   OUT/libtorch   LibTorch's libraries, one layer that tesserad and the worker share
#   OUT/tesserad   tesserad, tessera and tessera-worker (which tesserad asks for models' shapes)
#   OUT/worker     tessera-worker
#   OUT/agent      tessera-agent
set -euo pipefail
out=$1 binaries=$2 libtorch=$(readlink -f "$3")
here=$(cd "$(dirname "$0")/../.." && pwd)
triplet=x86_64-linux-gnu

libraries() {  # FILE...: name and path of each library it needs
  LD_LIBRARY_PATH=$libtorch/torch/lib:$libtorch/nvidia/cu13/lib ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u
}

image() {  # NAME PROGRAM...
  local root=$out/$1 name path real programs=("${@:2}")
  mkdir -p "$root"/usr/{bin,lib/tessera,lib64,lib/$triplet,share/tessera} "$root"/{etc/ssl/certs,tmp}
  for path in bin lib lib64; do ln -s "usr/$path" "$root/$path"; done
  chmod 1777 "$root/tmp"
  : >"$out/$1.files"
  for path in "${programs[@]}"; do install -s -m 755 "$binaries/$path" "$root/usr/bin/$path"; done
  while read -r name path; do
    real=$(readlink -f "$path")
    case "$real" in
      "$libtorch"/*) install -D -m 755 "$real" "$out/libtorch/usr/lib/tessera/$name" ;;
      *) install -m 755 "$real" "$root/usr/lib/$triplet/$name"; echo "$real" >>"$out/$1.files" ;;
    esac
  done < <(libraries "${programs[@]/#/$binaries/}")
  install -m 755 "$(readlink -f /lib64/ld-linux-x86-64.so.2)" "$root/usr/lib64/ld-linux-x86-64.so.2"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  echo /usr/sbin/update-ca-certificates >>"$out/$1.files"
  printf 'tessera:x:65532:65532::/tmp:/none\n' >"$root/etc/passwd"
  printf 'tessera:x:65532:\n' >"$root/etc/group"
  printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
  # The loader's cache names LibTorch's folder, which comes from another layer.
  printf '/usr/lib/tessera\n/usr/lib/%s\n' $triplet >"$root/etc/ld.so.conf"
  [ ! -d "$out/libtorch" ] || cp -al "$out/libtorch/usr/lib/tessera/." "$root/usr/lib/tessera/"
  ldconfig -r "$root" -X
  rm -rf "$root/usr/lib/tessera" "$root/var"
  python3 "$here/deploy/image/sbom.py" --name "tessera-$1" --files "$out/$1.files" --repository "$here" \
    $([ "$1" = agent ] || echo --libtorch) >"$out/$1.spdx.json"
  cp "$out/$1.spdx.json" "$root/usr/share/tessera/sbom.spdx.json"
}

rm -rf "$out"
mkdir -p "$out"
image agent tessera-agent
image worker tessera-worker
image tesserad tesserad tessera tessera-worker
# The same bytes make the same layers.
find "$out" -exec touch -h -d @0 {} +
