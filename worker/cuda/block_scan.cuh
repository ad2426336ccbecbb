// Sums before each thread of a block, and before each element of an array.
#pragma once

#include <cstdint>

namespace tessera::cuda {

constexpr int kWarp = 32;
constexpr int kScanThreads = 1024;
constexpr unsigned kAllLanes = 0xffffffffu;

// Sum of the values of all threads before this one. scratch [Threads / kWarp], shared. All threads call it.
template <int Threads, typename T>
__device__ T BlockExclusiveSum(T value, T* scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  T sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const T other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarp - 1) scratch[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    T warps = lane < Threads / kWarp ? scratch[lane] : T{0};
    for (int distance = 1; distance < Threads / kWarp; distance *= 2) {
      const T other = __shfl_up_sync(kAllLanes, warps, distance);
      if (lane >= distance) warps += other;
    }
    if (lane < Threads / kWarp) scratch[lane] = warps;
  }
  __syncthreads();
  const T before = warp > 0 ? scratch[warp - 1] : T{0};
  __syncthreads();  // the scratch may be used again
  return before + sum - value;
}

// In place: each becomes the sum of those before it. One block of kScanThreads.
static __global__ void ExclusiveSums(int64_t* values, int64_t count) {
  __shared__ long long scratch[kScanThreads / kWarp];
  __shared__ long long carry;
  if (threadIdx.x == 0) carry = 0;
  __syncthreads();
  for (int64_t begin = 0; begin < count; begin += kScanThreads) {
    const int64_t i = begin + threadIdx.x;
    const long long value = i < count ? static_cast<long long>(values[i]) : 0;
    const long long before = carry + BlockExclusiveSum<kScanThreads>(value, scratch);
    if (i < count) values[i] = before;
    __syncthreads();
    if (threadIdx.x == kScanThreads - 1) carry = before + value;
    __syncthreads();
  }
}

}  // namespace tessera::cuda
