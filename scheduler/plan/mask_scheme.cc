#include "scheduler/plan/mask_scheme.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera::plan {
namespace {

std::vector<std::unique_ptr<MaskScheme>>& Registry() {
  static auto* registry = new std::vector<std::unique_ptr<MaskScheme>>();
  return *registry;
}

}  // namespace

bool RegisterMaskScheme(std::unique_ptr<MaskScheme> scheme) {
  TESSERA_CHECK(FindMaskScheme(scheme->scheme()) == nullptr);
  Registry().push_back(std::move(scheme));
  return true;
}

std::vector<const MaskScheme*> MaskSchemes() {
  std::vector<const MaskScheme*> schemes;
  for (const auto& scheme : Registry()) schemes.push_back(scheme.get());
  std::sort(schemes.begin(), schemes.end(),
            [](const MaskScheme* a, const MaskScheme* b) { return a->scheme() < b->scheme(); });
  return schemes;
}

const MaskScheme* FindMaskScheme(Scheme scheme) {
  for (const auto& entry : Registry()) {
    if (entry->scheme() == scheme) return entry.get();
  }
  return nullptr;
}

}  // namespace tessera::plan
