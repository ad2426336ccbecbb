// Kernel launches, as host code calls them. All pointers but picks' owners are of the device; everything is
// queued on `stream` and nothing waits. Returned is CUDA's error of the launch, 0 for none.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/kernels/importance.h"
#include "worker/kernels/kept_elements.h"

namespace tessera::cuda {

// A selection's bitmap and where its tiles begin in the ring.
struct PreparedSelection {
  int64_t elements = 0;
  const uint64_t* words = nullptr;  // [WordsOf(elements)]
  const int64_t* tiles = nullptr;   // [TilesOf(elements)], kept elements before each
};

// Fills words and tiles: three launches, once per selection.
int LaunchPrepare(const kernels::SelectionView& selection, uint64_t* words, int64_t* tiles,
                  cudaStream_t stream);

// One launch each.
int LaunchCut(const PreparedSelection& selection, const kernels::CutArguments& arguments,
              cudaStream_t stream);
int LaunchReturn(const PreparedSelection& selection, int64_t begin, int64_t end, const float* ring,
                 const kernels::Residual& residual, cudaStream_t stream);
// Elements [begin, begin + count) -> out [count], zeros where nothing is kept.
int LaunchSpread(const PreparedSelection& selection, int64_t begin, int64_t count, const float* ring,
                 float* out, cudaStream_t stream);
int LaunchGather(const PreparedSelection& selection, const float* from, float* to, cudaStream_t stream);
int LaunchScatter(const PreparedSelection& selection, const float* from, float* to, cudaStream_t stream);
int LaunchUpdate(const PreparedSelection& selection, const kernels::UpdateArguments& update,
                 cudaStream_t stream);

// Memory that picking needs beside the bitmap, by its number of elements.
struct PickScratch {
  unsigned long long* counts = nullptr;          // NOLINT(google-runtime-int): CUDA's atomics; [kDigitValues]
  kernels::RadixThreshold* threshold = nullptr;  // [1]
  uint64_t* equal = nullptr;                     // [WordsOf(elements)]
  int64_t* tiles = nullptr;                      // [TilesOf(elements)]
};

// words: bitmap of the `picks` most important elements, of equal ones those with the lowest index.
int LaunchPick(const kernels::ImportanceInput& input, int64_t elements, int64_t picks,
               const PickScratch& scratch, uint64_t* words, cudaStream_t stream);

// signs: of the four rows. out [chunks * 4].
int LaunchSketch(const kernels::ImportanceInput& input, int64_t chunks, const uint64_t (&signs)[4],
                 float* out, cudaStream_t stream);

// Softmax cross-entropy of rows of logits [rows, classes], in place: logits become the gradient of the sum of
// losses if `gradient`. losses [rows]; rows whose target is `ignored` have loss 0 and gradient 0.
int LaunchSoftmaxLoss(float* logits, const int64_t* targets, int64_t rows, int64_t classes, int64_t ignored,
                      bool gradient, float* losses, cudaStream_t stream);

}  // namespace tessera::cuda
