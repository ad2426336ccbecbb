#include "scheduler/job/admission.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_format.h"

namespace tessera::job {
namespace {

std::string Megabytes(int64_t bytes) { return absl::StrFormat("%.0f MB", static_cast<double>(bytes) / 1e6); }

// Who has what, largest first.
std::string Holders(std::vector<const Claim*> holders) {
  constexpr size_t kNamed = 3;
  std::stable_sort(holders.begin(), holders.end(),
                   [](const Claim* a, const Claim* b) { return a->bytes > b->bytes; });
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, holders.size()); ++i) {
    absl::StrAppendFormat(&text, "%s'%s' holds %s", i == 0 ? "" : ", ", holders[i]->name,
                          Megabytes(holders[i]->bytes));
  }
  if (holders.size() > kNamed) absl::StrAppendFormat(&text, ", %d others less", holders.size() - kNamed);
  return text;
}

}  // namespace

std::map<std::string, Verdict> Admit(absl::Span<const Claim> claims, int64_t capacity_bytes, absl::Time now) {
  std::map<std::string, Verdict> verdicts;
  std::vector<const Claim*> waiting;
  int64_t held = 0;
  std::vector<const Claim*> holders;
  for (const Claim& claim : claims) {
    if (claim.holds) {
      held += claim.bytes;
      holders.push_back(&claim);
    } else if (claim.waits) {
      waiting.push_back(&claim);
    }
  }
  std::sort(waiting.begin(), waiting.end(), [](const Claim* a, const Claim* b) {
    return std::tie(b->priority, a->created, a->id) < std::tie(a->priority, b->created, b->id);
  });

  const Claim* blocker = nullptr;  // does not fit and has waited too long to be overtaken
  for (const Claim* claim : waiting) {
    Verdict& verdict = verdicts[claim->id];
    if (capacity_bytes <= 0) {
      verdict = {true, "admitted; the memory of this machine is not known"};
    } else if (claim->bytes > capacity_bytes) {
      verdict.message = absl::StrFormat("needs %s, more than the %s of this machine", Megabytes(claim->bytes),
                                        Megabytes(capacity_bytes));
    } else if (blocker != nullptr) {
      verdict.message =
          absl::StrFormat("waits behind job '%s', which needs %s; %s of %s are free", blocker->name,
                          Megabytes(blocker->bytes), Megabytes(std::max<int64_t>(0, capacity_bytes - held)),
                          Megabytes(capacity_bytes));
    } else if (held + claim->bytes > capacity_bytes) {
      if (now - claim->waiting_since >= kBackfillWindow) blocker = claim;
      const int64_t free = std::max<int64_t>(0, capacity_bytes - held);
      verdict.message = absl::StrFormat("needs %s; %s of %s are free; starts when %s more are: %s",
                                        Megabytes(claim->bytes), Megabytes(free), Megabytes(capacity_bytes),
                                        Megabytes(claim->bytes - free), Holders(holders));
    } else {
      held += claim->bytes;
      holders.push_back(claim);
      verdict = {true, absl::StrFormat("given %s of %s", Megabytes(claim->bytes), Megabytes(capacity_bytes))};
    }
  }
  return verdicts;
}

}  // namespace tessera::job
