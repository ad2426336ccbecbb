#!/usr/bin/env bash
# gradient dropping: time of selecting, cutting and spreading out the elements of one tensor (docs/results/dropping-kernels.md)
set -euo pipefail
ninja -C build/release dropping_kernels_bench >&2
exec build/release/bin/dropping_kernels_bench "$@"
