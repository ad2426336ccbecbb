// The most important elements of a tensor, and the softmax loss. See worker/kernels/importance.h.
#include "worker/cuda/block_scan.cuh"
#include "worker/cuda/launch.h"
#include "worker/kernels/softmax.h"

namespace tessera::cuda {
namespace {

using kernels::kDigitValues;
using kernels::kTileWords;
using kernels::kWordBits;
using Count = unsigned long long;  // NOLINT(google-runtime-int): what atomicAdd takes

constexpr int kMostBlocks = 1024;  // of grids whose threads go on to further elements

unsigned Blocks(int64_t work, int threads) {
  const int64_t blocks = (work + threads - 1) / threads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

__global__ void BeginPick(kernels::RadixThreshold* threshold, int64_t picks) {
  *threshold = kernels::RadixThreshold{0, picks};
}

__global__ void CountDigits(kernels::ImportanceInput input, int64_t elements, int pass,
                            const kernels::RadixThreshold* threshold, Count* counts) {
  __shared__ unsigned own[kDigitValues];
  for (int i = threadIdx.x; i < kDigitValues; i += blockDim.x) own[i] = 0;
  __syncthreads();
  const kernels::RadixThreshold known = *threshold;
  const kernels::Digit digit = kernels::DigitOfPass(pass);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    const int value = kernels::DigitOfKey(kernels::KeyOfElement(input, i), known, digit);
    if (value >= 0) atomicAdd(&own[value], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kDigitValues; i += blockDim.x) {
    if (own[i] != 0) atomicAdd(&counts[i], static_cast<Count>(own[i]));
  }
}

// One block. Also clears the counts for the next pass.
__global__ void AdvanceThreshold(int pass, kernels::RadixThreshold* threshold, Count* counts) {
  __shared__ Count own[kDigitValues];
  for (int i = threadIdx.x; i < kDigitValues; i += blockDim.x) {
    own[i] = counts[i];
    counts[i] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) *threshold = kernels::NextThreshold(*threshold, kernels::DigitOfPass(pass), own);
}

// A warp to a word, so that its lanes read neighbours.
__global__ void CompareKeys(kernels::ImportanceInput input, int64_t elements,
                            const kernels::RadixThreshold* threshold, uint64_t* larger, uint64_t* equal) {
  const uint32_t wanted = threshold->key;
  const int lane = threadIdx.x % kWarp;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * blockDim.x / kWarp;
  const int64_t words = kernels::WordsOf(elements);
  for (int64_t word = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp; word < words;
       word += warps) {
    uint64_t more = 0, same = 0;
    for (int half = 0; half < 2; ++half) {
      const int64_t i = word * kWordBits + half * kWarp + lane;
      const bool inside = i < elements;
      const uint32_t key = inside ? kernels::KeyOfElement(input, i) : 0;
      more |= static_cast<uint64_t>(__ballot_sync(kAllLanes, inside && key > wanted)) << (half * kWarp);
      same |= static_cast<uint64_t>(__ballot_sync(kAllLanes, inside && key == wanted)) << (half * kWarp);
    }
    if (lane == 0) {
      larger[word] = more;
      equal[word] = same;
    }
  }
}

__global__ void CountEqual(const uint64_t* equal, int64_t words, int64_t* tile_counts) {
  __shared__ int warps[kTileWords / kWarp];
  const int64_t word = static_cast<int64_t>(blockIdx.x) * kTileWords + threadIdx.x;
  const int count = word < words ? kernels::CountBits(equal[word]) : 0;
  const int before = BlockExclusiveSum<kTileWords>(count, warps);
  if (threadIdx.x == kTileWords - 1) tile_counts[blockIdx.x] = before + count;
}

// words has the larger ones; adds as many of the equal ones as are wanted, lowest index first.
__global__ void TakeEqual(const uint64_t* equal, const int64_t* tiles, int64_t words,
                          const kernels::RadixThreshold* threshold, uint64_t* picked) {
  __shared__ int warps[kTileWords / kWarp];
  const int64_t word = static_cast<int64_t>(blockIdx.x) * kTileWords + threadIdx.x;
  const uint64_t bits = word < words ? equal[word] : 0;
  const int before = BlockExclusiveSum<kTileWords>(kernels::CountBits(bits), warps);
  const int64_t left = threshold->ties - tiles[blockIdx.x] - before;
  if (word < words && left > 0) picked[word] |= kernels::LowestBits(bits, left);
}

struct Signs {
  uint64_t rows[4];
};

__global__ void SketchChunks(kernels::ImportanceInput input, int64_t chunks, Signs signs, float* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < chunks * 4) out[i] = kernels::SketchNumber(input, i / 4, signs.rows[i % 4]);
}

// A block to a row.
__global__ void SoftmaxLoss(float* logits, const int64_t* targets, int64_t classes, int64_t ignored,
                            bool gradient, float* losses) {
  __shared__ kernels::SoftmaxSum sums[kTileWords / kWarp];
  const int64_t row = blockIdx.x, target = targets[row];
  float* const z = logits + row * classes;
  if (target == ignored) {
    for (int64_t i = threadIdx.x; gradient && i < classes; i += blockDim.x) z[i] = 0;
    if (threadIdx.x == 0) losses[row] = 0;
    return;
  }
  kernels::SoftmaxSum own;
  for (int64_t i = threadIdx.x; i < classes; i += blockDim.x) own = kernels::Merge(own, {z[i], 1});
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    own = kernels::Merge(own, {__shfl_xor_sync(kAllLanes, own.largest, distance),
                               __shfl_xor_sync(kAllLanes, own.sum, distance)});
  }
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = own;
  __syncthreads();
  kernels::SoftmaxSum all = sums[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarp; ++w) all = kernels::Merge(all, sums[w]);
  if (threadIdx.x == 0) losses[row] = kernels::LossOf(all, z[target]);
  __syncthreads();  // the target's logit is overwritten below
  for (int64_t i = threadIdx.x; gradient && i < classes; i += blockDim.x) {
    z[i] = kernels::GradientOf(all, z[i], i == target);
  }
}

}  // namespace

int LaunchPick(const kernels::ImportanceInput& input, int64_t elements, int64_t picks, const PickScratch& scratch,
               uint64_t* words, cudaStream_t stream) {
  const int64_t word_count = kernels::WordsOf(elements);
  const auto tiles = static_cast<unsigned>(kernels::TilesOf(elements));
  if (picks <= 0 || elements <= 0) {
    return static_cast<int>(cudaMemsetAsync(words, 0, static_cast<size_t>(word_count) * sizeof(uint64_t), stream));
  }
  cudaMemsetAsync(scratch.counts, 0, kDigitValues * sizeof(Count), stream);
  BeginPick<<<1, 1, 0, stream>>>(scratch.threshold, picks);
  for (int pass = 0; pass < kernels::kDigits; ++pass) {
    CountDigits<<<Blocks(elements, 512), 512, 0, stream>>>(input, elements, pass, scratch.threshold, scratch.counts);
    AdvanceThreshold<<<1, 256, 0, stream>>>(pass, scratch.threshold, scratch.counts);
  }
  CompareKeys<<<Blocks(word_count * kWarp, 256), 256, 0, stream>>>(input, elements, scratch.threshold, words,
                                                                  scratch.equal);
  CountEqual<<<tiles, kTileWords, 0, stream>>>(scratch.equal, word_count, scratch.tiles);
  ExclusiveSums<<<1, kScanThreads, 0, stream>>>(scratch.tiles, tiles);
  TakeEqual<<<tiles, kTileWords, 0, stream>>>(scratch.equal, scratch.tiles, word_count, scratch.threshold, words);
  return static_cast<int>(cudaGetLastError());
}

int LaunchSketch(const kernels::ImportanceInput& input, int64_t chunks, const uint64_t (&signs)[4], float* out,
                 cudaStream_t stream) {
  if (chunks == 0) return 0;
  const Signs rows{{signs[0], signs[1], signs[2], signs[3]}};
  SketchChunks<<<static_cast<unsigned>((chunks * 4 + 255) / 256), 256, 0, stream>>>(input, chunks, rows, out);
  return static_cast<int>(cudaGetLastError());
}

int LaunchSoftmaxLoss(float* logits, const int64_t* targets, int64_t rows, int64_t classes, int64_t ignored,
                      bool gradient, float* losses, cudaStream_t stream) {
  if (rows == 0) return 0;
  SoftmaxLoss<<<static_cast<unsigned>(rows), kTileWords, 0, stream>>>(logits, targets, classes, ignored, gradient,
                                                                      losses);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace tessera::cuda
