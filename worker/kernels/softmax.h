// Softmax cross-entropy of a row that many threads read in parts: each sums up its own, and the parts are
// merged. After "Online normalizer calculation for softmax" (Milakov and Gimelshein, arXiv 1805.02867,
// section 3).
#pragma once

#include "worker/kernels/portable.h"

#ifndef __CUDA_ARCH__
#include <cmath>
#endif

namespace tessera::kernels {

// Of some logits: the largest, and the sum of exp(logit - largest).
struct SoftmaxSum {
  float largest = -3.402823466e38f;
  float sum = 0;
};

TESSERA_PORTABLE float Exp(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  return std::exp(x);
#endif
}

TESSERA_PORTABLE SoftmaxSum Merge(const SoftmaxSum& a, const SoftmaxSum& b) {
  if (b.sum == 0) return a;
  if (a.sum == 0) return b;
  const float largest = a.largest > b.largest ? a.largest : b.largest;
  return {largest, a.sum * Exp(a.largest - largest) + b.sum * Exp(b.largest - largest)};
}

TESSERA_PORTABLE float LossOf(const SoftmaxSum& all, float target_logit) {
#ifdef __CUDA_ARCH__
  return logf(all.sum) + all.largest - target_logit;
#else
  return std::log(all.sum) + all.largest - target_logit;
#endif
}

TESSERA_PORTABLE float GradientOf(const SoftmaxSum& all, float logit, bool target) {
  return Exp(logit - all.largest) / all.sum - (target ? 1.0f : 0.0f);
}

}  // namespace tessera::kernels
