// Products with weights. Under Autocast they take and give bf16 with the values of torch's autocast; for
// backward they keep their input in bf16 and the weight itself, of which torch keeps a copy in bf16: copies
// would add half the model to the activations, and would undo sharding, whose weights are gone by then.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::worker {

// x in the type that products take, for one that several share: it is cast, and kept, once.
at::Tensor ForProducts(const at::Tensor& x);

// x [..., K] * weight [D, K]^T + bias [D] -> [..., D]; bias may be undefined.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight_DK, const at::Tensor& bias_D = {});

// residual + scale * a * weight^T, [N, D]. In fp32 the residual rides in the product: no pass of its own.
at::Tensor AddProduct(const at::Tensor& residual_ND, const at::Tensor& a_NK, const at::Tensor& weight_DK,
                      double scale);

}  // namespace tessera::worker
