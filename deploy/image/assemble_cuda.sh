#!/usr/bin/env bash
# assemble_cuda.sh OUT BUILD: what the image worker-cuda has beside the worker's: the plug-in of the build folder
# where the worker looks for it, and the libraries that it loads, all in one folder, as each looks beside itself. OUT
# is beside what assemble.sh made.
set -euo pipefail
out=$1 build=$2
here=$(cd "$(dirname "$0")/../.." && pwd)
packages=$(sed -n 's/^TESSERA_CUDA_PACKAGES:PATH=//p' "$build/CMakeCache.txt")
[ -n "$packages" ] || { echo "assemble_cuda.sh: $build was not built with TESSERA_CUDA: ./dev build cuda" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"/usr/{lib/tessera,share/tessera}
install -s -m 755 "$build/lib/libtessera_cuda.so" "$out/usr/lib/"
# What nothing of ours loads stays out: the compiler, profilers, linear algebra that needs cuSOLVER, and NVSHMEM's transports.
# LibTorch's host half and the CUDA runtime are in a layer below.
find "$packages/torch/lib" "$packages"/nvidia/*/lib -name '*.so*' ! -name 'libnvvm.so*' ! -name 'libnvperf_*' \
  ! -name libcheckpoint.so ! -name libpcsamplingutil.so ! -name libtorch_cuda_linalg.so ! -name 'nvshmem_*' \
  ! -name 'libcudart.so*' ! -name 'libcupti.so*' -exec cp -L -t "$out/usr/lib/tessera" {} +
python3 "$here/deploy/image/sbom.py" --name tessera-worker-cuda --files "$(dirname "$out")/worker.files" \
  --repository "$here" --libtorch --cuda >"$out/usr/share/tessera/sbom.spdx.json"
find "$out" -exec touch -h -d @0 {} +
