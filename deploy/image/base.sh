#!/usr/bin/env bash
# base.sh STORAGE: makes localhost/debian:12 with debootstrap in a storage of buildah, for machines that reach Debian's
# packages and no image registry. Package sources and settings of apt, pip and npm are those of this machine. Then
#   buildah build --isolation chroot --storage-driver vfs --root STORAGE --runroot STORAGE.run \
#     --build-arg BASE=localhost/debian:12 --target tesserad -t tessera-tesserad .
# compiles inside, as Docker does elsewhere with the base it pulls.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "base.sh: debootstrap needs root" >&2; exit 1; }
storage=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1 || true)
debootstrap --variant=minbase --include=ca-certificates bookworm "$work/rootfs" "${mirror% }" >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
cp -r /etc/apt/sources.list* /etc/apt/apt.conf.d /etc/apt/auth.conf* "$work/rootfs/etc/apt/" 2>/dev/null || true
for file in /etc/pip.conf /etc/npmrc "$HOME/.npmrc" "$HOME/.config/pip/pip.conf"; do
  [ ! -e "$file" ] || install -D -m 600 "$file" "$work/rootfs/${file#/}"
done
# And whom this machine trusts.
cp /usr/local/share/ca-certificates/*.crt "$work/rootfs/usr/local/share/ca-certificates/" 2>/dev/null || true
cp /etc/ssl/certs/ca-certificates.crt "$work/rootfs/etc/ssl/certs/"
rm -rf "$work/rootfs/var/cache/apt/archives"/*.deb "$work/rootfs/var/lib/apt/lists"/*
tar -C "$work/rootfs" -cf "$work/rootfs.tar" .
buildah=(buildah --storage-driver vfs --root "$storage" --runroot "$storage.run")
container=$("${buildah[@]}" from scratch)
"${buildah[@]}" add -q "$container" "$work/rootfs.tar" /
"${buildah[@]}" config --cmd /bin/bash --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
"${buildah[@]}" commit -q --rm "$container" localhost/debian:12
