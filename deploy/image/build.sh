#!/usr/bin/env bash
# build.sh BINARIES LIBTORCH OUT: the images of the Dockerfile as archives OUT/{tesserad,worker,agent}.tar, named
# localhost/tessera-NAME:TAG with TAG, which OUT/tag holds, from their content. Takes the programs of BINARIES.
# Does nothing where these very programs are packed already, and packs only what changed where others were: OUT/storage
# keeps LibTorch's layer. Needs no engine, no registry and no network.
set -euo pipefail
cd "$(dirname "$0")/../.."
binaries=$1 libtorch=$2 out=$3
mkdir -p "$out"
tag=$(cat Dockerfile deploy/image/* "$binaries"/{tesserad,tessera,tessera-worker,tessera-agent} | sha256sum | cut -c1-12)
if [ "$(cat "$out/tag" 2>/dev/null)" = "$tag" ]; then exit; fi
rm -f "$out"/*.tar "$out"/tag
# Overlays share files between layers; where they do not work, each layer is a copy.
tools=(buildah --storage-driver overlay --root "$out/storage" --runroot "$out/run")
"${tools[@]}" info >/dev/null 2>&1 || { rm -rf "$out"/{storage,run}; tools[2]=vfs; }
deploy/image/assemble.sh build/image "$binaries" "$libtorch"
pack() {  # NAME
  local image=localhost/tessera-$1:$tag
  "${tools[@]}" build --isolation chroot --layers --timestamp 0 --build-context "programs=build/image" --target "$1" -t "$image" . &&
    "${tools[@]}" push "$image" "docker-archive:$out/$1.tar:$image"
}
for name in tesserad worker agent; do
  pack "$name" >"$out/$name.log" 2>&1 || { tail -20 "$out/$name.log" >&2; exit 1; }
done
# Of programs that were packed before nothing is kept but the layer that these share with them.
"${tools[@]}" images --format '{{.Name}}:{{.Tag}}' | { grep "/tessera-" || true; } | { grep -v ":$tag$" || true; } |
  xargs -r "${tools[@]}" rmi >/dev/null
echo "$tag" >"$out/tag"
