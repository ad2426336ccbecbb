#include "scheduler/store/store_registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "scheduler/store/memory_store.h"
#include "scheduler/store/sqlite_store.h"

namespace tessera::scheduler {
namespace {

constexpr StoreKind kKinds[] = {
    {"memory", false,
     [](const std::string&) -> absl::StatusOr<std::unique_ptr<JobStore>> { return MakeMemoryStore(); }},
    {"sqlite", true, OpenSqliteStore},
};

}  // namespace

absl::Span<const StoreKind> StoreKinds() { return kKinds; }

absl::StatusOr<std::unique_ptr<JobStore>> OpenJobStore(const std::string& location) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(location, absl::MaxSplits(':', 1));
  for (const StoreKind& kind : kKinds) {
    if (parts.first != kind.name) continue;
    if (kind.durable == parts.second.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("job store '", location, "': ", kind.name,
                                                     kind.durable ? " needs a file, " : " takes no file",
                                                     kind.durable ? absl::StrCat(kind.name, ":<file>") : ""));
    }
    return kind.open(parts.second);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "job store '", location, "': known kinds are ",
      absl::StrJoin(kKinds, ", ", [](std::string* out, const StoreKind& kind) { out->append(kind.name); })));
}

}  // namespace tessera::scheduler
