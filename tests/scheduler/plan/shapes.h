// Model shapes for tests, built from published dimensions.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/plan/model_shape.h"

namespace tessera::plan::testing {

struct LlamaDims {
  int64_t hidden = 768;
  int layers = 12;
  int64_t heads = 12;
  int64_t kv_heads = 12;
  int64_t ffn = 2048;
  int64_t vocab = 32000;
  bool tied = false;
};

// Hugging Face's parameter names. The defaults are "llama-134m": 134,105,856 parameters.
inline ModelShape LlamaShape(const LlamaDims& d = {}) {
  ModelShape shape{.model = "llama", .vocab_size = d.vocab};
  const int64_t kv = d.hidden / d.heads * d.kv_heads;
  shape.parameters.push_back({.name = "model.embed_tokens.weight", .dims = {d.vocab, d.hidden}});
  for (int b = 0; b < d.layers; ++b) {
    const std::string prefix = "model.layers." + std::to_string(b);
    const auto add = [&](const std::string& name, std::vector<int64_t> dims, std::vector<Axis> axes) {
      const bool decay = dims.size() > 1;
      shape.parameters.push_back({.name = prefix + name,
                                  .dims = std::move(dims),
                                  .block = b,
                                  .axes = std::move(axes),
                                  .decay = decay});
    };
    const Axis none = Axis::kNone;
    add(".input_layernorm.weight", {d.hidden}, {none});
    add(".self_attn.q_proj.weight", {d.hidden, d.hidden}, {Axis::kHead, none});
    add(".self_attn.k_proj.weight", {kv, d.hidden}, {Axis::kHead, none});
    add(".self_attn.v_proj.weight", {kv, d.hidden}, {Axis::kHead, none});
    add(".self_attn.o_proj.weight", {d.hidden, d.hidden}, {none, Axis::kHead});
    add(".post_attention_layernorm.weight", {d.hidden}, {none});
    add(".mlp.gate_proj.weight", {d.ffn, d.hidden}, {Axis::kFfn, none});
    add(".mlp.up_proj.weight", {d.ffn, d.hidden}, {Axis::kFfn, none});
    add(".mlp.down_proj.weight", {d.hidden, d.ffn}, {none, Axis::kFfn});
    const int64_t weights = 2 * d.hidden * d.hidden + 2 * kv * d.hidden + 3 * d.ffn * d.hidden;
    shape.blocks.push_back({.name = prefix,
                            .flops_per_token = 2.0 * static_cast<double>(weights),
                            .axes = {{Axis::kHead, d.kv_heads}, {Axis::kFfn, d.ffn}}});
  }
  shape.parameters.push_back({.name = "model.norm.weight", .dims = {d.hidden}, .decay = false});
  if (!d.tied) shape.parameters.push_back({.name = "lm_head.weight", .dims = {d.vocab, d.hidden}});
  shape.base_flops_per_token = 2.0 * static_cast<double>(d.vocab * d.hidden);
  return shape;
}

// ResNet-18 for CIFAR-10 (3x3 first convolution, no max-pool): 11,173,962 parameters.
// Strided shortcuts stay outside the blocks: an absent block is its shortcut.
inline ModelShape ResNet18CifarShape() {
  ModelShape shape{.model = "resnet"};
  const auto add = [&](const std::string& name, std::vector<int64_t> dims, int block) {
    shape.parameters.push_back({.name = name, .dims = std::move(dims), .block = block});
  };
  const auto norm = [&](const std::string& name, int64_t channels, int block) {
    add(name + ".weight", {channels}, block);
    add(name + ".bias", {channels}, block);
  };
  add("conv1.weight", {64, 3, 3, 3}, kNoBlock);
  norm("bn1", 64, kNoBlock);
  shape.base_flops_per_token = 2.0 * 64 * 27 * 32 * 32;
  int64_t in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t out = int64_t{64} << stage;
    const double pixels = 32.0 * 32.0 / (1 << (2 * stage));
    for (int i = 0; i < 2; ++i) {
      const int block = static_cast<int>(shape.blocks.size());
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      add(name + ".conv1.weight", {out, in, 3, 3}, block);
      norm(name + ".bn1", out, block);
      add(name + ".conv2.weight", {out, out, 3, 3}, block);
      norm(name + ".bn2", out, block);
      if (in != out) {
        add(name + ".shortcut.0.weight", {out, in, 1, 1}, kNoBlock);
        norm(name + ".shortcut.1", out, kNoBlock);
        shape.base_flops_per_token += 2.0 * static_cast<double>(in * out) * pixels;
      }
      shape.blocks.push_back({.name = name,
                              .flops_per_token = 2.0 * 9 * static_cast<double>(in * out + out * out) * pixels,
                              .axes = {{Axis::kChannel, out}},
                              .kind = 2 * stage + i});
      in = out;
    }
  }
  add("linear.weight", {10, 512}, kNoBlock);
  add("linear.bias", {10}, kNoBlock);
  shape.base_flops_per_token += 2.0 * 5120;
  return shape;
}

// `blocks` equal blocks of `elements` elements and as many FLOPs, nothing else.
inline ModelShape UniformShape(int blocks, int64_t elements = 1000) {
  ModelShape shape{.model = "uniform"};
  for (int b = 0; b < blocks; ++b) {
    const std::string name = "block." + std::to_string(b);
    shape.parameters.push_back({.name = name + ".weight", .dims = {elements}, .block = b});
    shape.blocks.push_back({.name = name, .flops_per_token = 2.0 * static_cast<double>(elements)});
  }
  return shape;
}

}  // namespace tessera::plan::testing
