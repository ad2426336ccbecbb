#!/usr/bin/env bash
# assemble_cuda.sh OUT BUILD: what the image worker-cuda has beside the worker's: the plug-in of the build folder
# where the worker looks for it, and the libraries that it loads, all in one folder, as each looks beside itself.
set -euo pipefail
out=$1 build=$2
packages=$(sed -n 's/^TESSERA_CUDA_PACKAGES:PATH=//p' "$build/CMakeCache.txt")
[ -n "$packages" ] || { echo "assemble_cuda.sh: $build was not built with TESSERA_CUDA: ./dev build cuda" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out/usr/lib/tessera"
install -s -m 755 "$build/lib/libtessera_cuda.so" "$out/usr/lib/"
# The compiler's own library is not loaded by anything that runs.
find "$packages/torch/lib" "$packages"/nvidia/*/lib -name '*.so*' ! -name 'libnvvm.so*' -exec cp -L -t "$out/usr/lib/tessera" {} +
# LibTorch's host half and the CUDA runtime are in a layer below.
rm -f "$out"/usr/lib/tessera/libcudart.so.* "$out"/usr/lib/tessera/libcupti.so.*
