// Rotary position embedding (Su et al., 2021) in the rotate-half layout: of a
// head of K numbers, i and i + K/2 are rotated together, as in Hugging Face's LLaMA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::worker {

struct RotaryTable {
  at::Tensor cosine;  // [positions, K/2] fp32
  at::Tensor sine;    // [positions, K/2] fp32
};

// Angles position * theta^(-2i/K), rounded to fp32 where Hugging Face rounds.
RotaryTable MakeRotaryTable(int64_t positions, int64_t head_size, double theta);

// x [B, T, H, K] fp32 -> rotated by positions 0..T-1, same shape. Keeps nothing of x for
// backward. The table must have at least T positions.
at::Tensor ApplyRotary(const at::Tensor& x_BTHK, const RotaryTable& table);

}  // namespace tessera::worker
