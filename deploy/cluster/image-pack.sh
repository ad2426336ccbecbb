#!/usr/bin/env bash
# image-pack.sh OUT.tar NAME:TAG FOLDER ENTRYPOINT...: a folder as a container image of one layer, without a
# container engine and the same bytes each time. IMAGE_USER is its numeric user.
set -euo pipefail
out=$1 name=$2 folder=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$folder" --sort=name --mtime=@0 --numeric-owner --owner=0 --group=0 -cf "$work/layer.tar" .
python3 - "$work" "$name" "${IMAGE_USER:-}" "$@" <<'PY'
import hashlib, json, pathlib, sys
work, name, user, *entrypoint = sys.argv[1:]
work = pathlib.Path(work)
digest = hashlib.sha256((work / "layer.tar").read_bytes()).hexdigest()
(work / "config.json").write_text(json.dumps({
    "architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z",
    "config": {"Entrypoint": entrypoint, "Env": ["PATH=/usr/bin:/bin"], "WorkingDir": "/", "User": user},
    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}))
(work / "manifest.json").write_text(json.dumps(
    [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]))
PY
mkdir -p "$(dirname "$out")"
tar -C "$work" -cf "$out.partial" manifest.json config.json layer.tar
mv "$out.partial" "$out"
