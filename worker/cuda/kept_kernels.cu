// Kernels of gradient dropping. Index arithmetic and what happens to an element stand in worker/kernels.
#include "worker/cuda/block_scan.cuh"
#include "worker/cuda/launch.h"

namespace tessera::cuda {
namespace {

using kernels::kTileElements;
using kernels::kTileWords;
using kernels::kWordBits;

__global__ void SelectWords(kernels::SelectionView selection, uint64_t* words, int64_t* tile_counts) {
  __shared__ int warps[kTileWords / kWarp];
  const int64_t word = static_cast<int64_t>(blockIdx.x) * kTileWords + threadIdx.x;
  uint64_t bits = 0;
  if (word < kernels::WordsOf(selection.elements)) words[word] = bits = kernels::SelectedWord(selection, word);
  const int before = BlockExclusiveSum<kTileWords>(kernels::CountBits(bits), warps);
  if (threadIdx.x == kTileWords - 1) tile_counts[blockIdx.x] = before + kernels::CountBits(bits);
}

template <typename Body>
__global__ void ForEachElement(PreparedSelection selection, int64_t first_tile, Body body) {
  __shared__ int warps[kTileWords / kWarp];
  __shared__ uint64_t bits[kTileWords];
  __shared__ int before[kTileWords];
  const int64_t tile = first_tile + blockIdx.x, word = tile * kTileWords + threadIdx.x;
  const uint64_t mine = word < kernels::WordsOf(selection.elements) ? selection.words[word] : 0;
  bits[threadIdx.x] = mine;
  before[threadIdx.x] = BlockExclusiveSum<kTileWords>(kernels::CountBits(mine), warps);
  __syncthreads();
  const int64_t base = selection.tiles[tile];
  // Neighbouring threads do neighbouring elements.
  for (int64_t i = threadIdx.x; i < kTileElements; i += kTileWords) {
    const int64_t element = tile * kTileElements + i;
    if (element >= selection.elements) return;
    const int w = static_cast<int>(i / kWordBits), bit = static_cast<int>(i % kWordBits);
    body(element, (bits[w] >> bit & 1) != 0, base + before[w] + kernels::RankInWord(bits[w], bit));
  }
}

struct CutBody {
  kernels::CutArguments arguments;
  __device__ void operator()(int64_t element, bool kept, int64_t rank) const {
    kernels::CutElement(arguments, element, kept, rank);
  }
};

struct ReturnBody {
  int64_t begin, end;
  const float* ring;
  kernels::Residual residual;
  __device__ void operator()(int64_t element, bool kept, int64_t rank) const {
    if (kept) kernels::ReturnElement(ring, begin, end, residual, element, rank);
  }
};

struct SpreadBody {
  int64_t begin, end;
  const float* ring;
  float* out;
  __device__ void operator()(int64_t element, bool kept, int64_t rank) const {
    if (element >= begin && element < end) out[element - begin] = kept ? ring[rank] : 0.0f;
  }
};

struct GatherBody {
  const float* from;
  float* to;
  __device__ void operator()(int64_t element, bool kept, int64_t rank) const {
    if (kept) to[rank] = from[element];
  }
};

struct ScatterBody {
  const float* from;
  float* to;
  __device__ void operator()(int64_t element, bool kept, int64_t rank) const {
    if (kept) to[element] = from[rank];
  }
};

struct UpdateBody {
  kernels::UpdateArguments update;
  __device__ void operator()(int64_t element, bool kept, int64_t rank) const {
    kernels::UpdateElement(update, element, kept, rank);
  }
};

template <typename Body>
int Launch(const PreparedSelection& selection, int64_t begin, int64_t end, const Body& body, cudaStream_t stream) {
  if (begin >= end) return 0;
  const int64_t first = begin / kTileElements, tiles = kernels::TilesOf(end) - first;
  ForEachElement<<<static_cast<unsigned>(tiles), kTileWords, 0, stream>>>(selection, first, body);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

int LaunchPrepare(const kernels::SelectionView& selection, uint64_t* words, int64_t* tiles, cudaStream_t stream) {
  const int64_t count = kernels::TilesOf(selection.elements);
  if (count == 0) return 0;
  SelectWords<<<static_cast<unsigned>(count), kTileWords, 0, stream>>>(selection, words, tiles);
  ExclusiveSums<<<1, kScanThreads, 0, stream>>>(tiles, count);
  return static_cast<int>(cudaGetLastError());
}

int LaunchCut(const PreparedSelection& selection, const kernels::CutArguments& arguments, cudaStream_t stream) {
  return Launch(selection, 0, selection.elements, CutBody{arguments}, stream);
}

int LaunchReturn(const PreparedSelection& selection, int64_t begin, int64_t end, const float* ring,
                 const kernels::Residual& residual, cudaStream_t stream) {
  return Launch(selection, 0, selection.elements, ReturnBody{begin, end, ring, residual}, stream);
}

int LaunchSpread(const PreparedSelection& selection, int64_t begin, int64_t count, const float* ring, float* out,
                 cudaStream_t stream) {
  return Launch(selection, begin, begin + count, SpreadBody{begin, begin + count, ring, out}, stream);
}

int LaunchGather(const PreparedSelection& selection, const float* from, float* to, cudaStream_t stream) {
  return Launch(selection, 0, selection.elements, GatherBody{from, to}, stream);
}

int LaunchScatter(const PreparedSelection& selection, const float* from, float* to, cudaStream_t stream) {
  return Launch(selection, 0, selection.elements, ScatterBody{from, to}, stream);
}

int LaunchUpdate(const PreparedSelection& selection, const kernels::UpdateArguments& update, cudaStream_t stream) {
  return Launch(selection, 0, selection.elements, UpdateBody{update}, stream);
}

}  // namespace tessera::cuda
