// The kinds of job stores. A new one is a line in store_registry.cc; the
// conformance suite then runs over it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/store/job_store.h"

namespace tessera::scheduler {

struct StoreKind {
  const char* name;
  bool durable;  // takes a file and finds its content again
  absl::StatusOr<std::unique_ptr<JobStore>> (*open)(const std::string& file);
};

absl::Span<const StoreKind> StoreKinds();

}  // namespace tessera::scheduler
