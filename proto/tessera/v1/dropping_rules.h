// The rules of spec.dropping.rule, as submission checks them. The worker's registry of rules says the same of
// itself, and a test holds the two together.
#pragma once

#include <array>

#include "absl/strings/string_view.h"

namespace tessera::spec {

struct DroppingRuleTraits {
  absl::string_view name;
  bool needs_moments = false;   // those of adamw
  bool needs_residual = false;  // bf16 or fp32
  bool picks_alone = false;     // each holder for itself: what it sends goes with its indices
  double default_share = 0;     // of the budget that it picks
};

inline constexpr std::array<DroppingRuleTraits, 7> kDroppingRules{{
    {.name = "cyclic_top_k", .needs_residual = true, .default_share = 1},
    {.name = "magnitude", .picks_alone = true, .default_share = 1},
    {.name = "momentum_ratio", .needs_moments = true, .default_share = 0.5},
    {.name = "random", .default_share = 1},
    {.name = "rotation"},
    {.name = "second_moment", .needs_moments = true, .default_share = 0.5},
    {.name = "sketch_top_k", .needs_residual = true, .default_share = 1},
}};

// Null: not known.
constexpr const DroppingRuleTraits* FindDroppingRule(absl::string_view name) {
  for (const DroppingRuleTraits& rule : kDroppingRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

}  // namespace tessera::spec
