#!/usr/bin/env bash
# build.sh BINARIES LIBTORCH OUT: the images of the Dockerfile as archives OUT/{tesserad,worker,agent}.tar, named
# localhost/tessera-NAME:TAG with TAG from their content; OUT/images lists the names. Takes the programs of BINARIES.
# Does nothing where these very programs are packed already. Needs no engine, no registry and no network.
set -euo pipefail
cd "$(dirname "$0")/../.."
binaries=$1 libtorch=$2 out=$3
mkdir -p "$out"
tag=$(cat Dockerfile deploy/image/* "$binaries"/{tesserad,tessera,tessera-worker,tessera-agent} | sha256sum | cut -c1-12)
if [ "$(cat "$out/tag" 2>/dev/null)" != "$tag" ]; then
  rm -rf "$out"/*.tar "$out"/tag "$out"/{storage,run}  # and what was cut off
  deploy/image/assemble.sh build/image "$binaries" "$libtorch"
  for name in tesserad worker agent; do
    buildah build --isolation chroot --storage-driver vfs --root "$out/storage" --runroot "$out/run" \
      --layers=false --timestamp 0 --build-arg PROGRAMS=prebuilt --target "$name" -t "localhost/tessera-$name:$tag" . >"$out/$name.log" 2>&1 ||
      { tail -20 "$out/$name.log" >&2; exit 1; }
    buildah --storage-driver vfs --root "$out/storage" --runroot "$out/run" push "localhost/tessera-$name:$tag" \
      "docker-archive:$out/$name.tar:localhost/tessera-$name:$tag" >>"$out/$name.log" 2>&1
  done
  rm -rf "$out/storage" "$out/run"
  echo "$tag" >"$out/tag"
fi
