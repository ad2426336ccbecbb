// Weights as a formula of their name, the same as in tests/peers/formula_weights.py: a golden of a large
// model then holds its results alone.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "worker/models/model.h"

namespace tessera::worker {

// Element i of the stream, uniform in [-0.5, 0.5).
inline double FormulaNumber(uint32_t stream, uint32_t i) {
  uint32_t x = stream ^ (i * 2654435761U);
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  x ^= x >> 16;
  return static_cast<double>(x) * 0x1p-32 - 0.5;
}

inline uint32_t FormulaStream(std::string_view name) {  // FNV-1a
  uint32_t hash = 2166136261U;
  for (unsigned char c : name) hash = (hash ^ c) * 16777619U;
  return hash;
}

inline at::Tensor FormulaTensor(const std::string& name, const std::vector<int64_t>& dims, double offset,
                                double scale) {
  at::Tensor tensor = at::empty(dims, at::kFloat);
  const uint32_t stream = FormulaStream(name);
  float* data = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    data[i] = static_cast<float>(offset + scale * FormulaNumber(stream, static_cast<uint32_t>(i)));
  }
  return tensor;
}

// Matrices keep the size of what goes through them; norms are near 1 and biases near 0, and none is equal.
inline at::Tensor FormulaWeight(const std::string& name, const std::vector<int64_t>& dims) {
  if (dims.size() == 1) {
    const bool bias = name.ends_with("bias");
    if (name.ends_with("running_mean")) return FormulaTensor(name, dims, 0, 0.4);
    if (name.ends_with("running_var")) return FormulaTensor(name, dims, 1, 0.5);
    return FormulaTensor(name, dims, bias ? 0 : 1, 0.4);
  }
  if (name.find("embedding") != std::string::npos || name.ends_with("bias_table")) {
    return FormulaTensor(name, dims, 0, 1);
  }
  double fan_in = 1;
  for (size_t d = 1; d < dims.size(); ++d) fan_in *= static_cast<double>(dims[d]);
  return FormulaTensor(name, dims, 0, std::sqrt(12 / fan_in));
}

inline Weights FormulaWeights(const plan::ModelShape& shape) {
  Weights weights;
  for (const plan::Parameter& p : shape.parameters) weights.push_back(FormulaWeight(p.name, p.dims));
  for (const plan::Buffer& b : shape.buffers) weights.push_back(FormulaWeight(b.name, b.dims));
  return weights;
}

}  // namespace tessera::worker
