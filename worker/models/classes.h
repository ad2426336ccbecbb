// What models have in common whose head tells classes apart.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "worker/models/model.h"

namespace tessera::worker {

// Sum over the samples that have a target. logits: [batch, classes], of any type; computed in fp32.
at::Tensor ClassLoss(const at::Tensor& logits, const Batch& batch);

// The classes' names as Hugging Face writes them to config.json: LABEL_0, LABEL_1 ...
void AddLabels(int64_t classes, nlohmann::ordered_json& config);

// The input of a model that tells classes of square images apart; size: pixels a side.
ModelInput ImageInput(int64_t classes, int64_t channels, int64_t size);

// What models fill a parameter with: of one dimension (biases, norms) with `constant`, else normally
// distributed with this deviation. out: fp32, of the parameter's dims.
void InitializeParameter(const plan::Parameter& parameter, uint64_t seed, double constant, double deviation,
                         at::Tensor& out);

}  // namespace tessera::worker
