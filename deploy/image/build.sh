#!/usr/bin/env bash
# build.sh [--cuda] BINARIES LIBTORCH OUT: the images of the Dockerfile as archives OUT/{tesserad,worker,agent}.tar, named
# localhost/tessera-NAME:TAG with TAG, which OUT/tag holds, from their content. Takes the programs of BINARIES.
# Does nothing where these very programs are packed already, and packs only what changed where others were: OUT/storage
# keeps LibTorch's layer. Needs no engine, no registry and no network. With --cuda also OUT/worker-cuda.tar (4 GB, and as
# much again in OUT/storage), of the build folder above BINARIES, which `./dev build cuda` has made.
set -euo pipefail
cd "$(dirname "$0")/../.."
names=(tesserad worker agent) plugin=()
if [ "${1:-}" = --cuda ]; then
  shift
  names+=(worker-cuda) plugin=("$1/../lib/libtessera_cuda.so")
fi
binaries=$1 libtorch=$2 out=$3
mkdir -p "$out"
tag=$(cat Dockerfile deploy/image/* "$binaries"/{tesserad,tessera,tessera-worker,tessera-agent} "${plugin[@]}" | sha256sum | cut -c1-12)
if [ "$(cat "$out/tag" 2>/dev/null)" = "$tag" ]; then exit; fi
rm -f "$out"/*.tar "$out"/tag
# Overlays share files between layers; where they do not work, each layer is a copy.
tools=(buildah --storage-driver overlay --root "$out/storage" --runroot "$out/run")
"${tools[@]}" info >/dev/null 2>&1 || { rm -rf "$out"/{storage,run}; tools[2]=vfs; }
deploy/image/assemble.sh build/image "$binaries" "$libtorch"
contexts=(--build-context "programs=build/image")
if [ ${#plugin[@]} -gt 0 ]; then
  deploy/image/assemble_cuda.sh build/image/cuda "$binaries/.."
  contexts+=(--build-context "cuda=build/image/cuda")
fi
pack() {  # NAME
  local image=localhost/tessera-$1:$tag
  "${tools[@]}" build --isolation chroot --layers --timestamp 0 "${contexts[@]}" --target "$1" -t "$image" . &&
    "${tools[@]}" push "$image" "docker-archive:$out/$1.tar:$image"
}
for name in "${names[@]}"; do
  pack "$name" >"$out/$name.log" 2>&1 || { tail -20 "$out/$name.log" >&2; exit 1; }
done
# Of programs that were packed before nothing is kept but the layer that these share with them.
"${tools[@]}" images --format '{{.Name}}:{{.Tag}}' | { grep "/tessera-" || true; } | { grep -v ":$tag$" || true; } |
  xargs -r "${tools[@]}" rmi >/dev/null
echo "$tag" >"$out/tag"
