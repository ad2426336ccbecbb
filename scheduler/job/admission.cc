#include "scheduler/job/admission.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_format.h"

namespace tessera::job {
namespace {

std::string Megabytes(int64_t bytes) { return absl::StrFormat("%.0f MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

std::map<std::string, Verdict> Admit(absl::Span<const Claim> claims, int64_t capacity_bytes, absl::Time now) {
  std::map<std::string, Verdict> verdicts;
  std::vector<const Claim*> waiting;
  int64_t held = 0;
  int holders = 0;
  for (const Claim& claim : claims) {
    if (claim.holds) {
      held += claim.bytes;
      ++holders;
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
      verdict.message = absl::StrFormat(
          "needs %s; %s of %s are free, %d other job%s hold%s the rest", Megabytes(claim->bytes),
          Megabytes(std::max<int64_t>(0, capacity_bytes - held)), Megabytes(capacity_bytes), holders,
          holders == 1 ? "" : "s", holders == 1 ? "s" : "");
    } else {
      held += claim->bytes;
      ++holders;
      verdict = {true, absl::StrFormat("given %s of %s", Megabytes(claim->bytes), Megabytes(capacity_bytes))};
    }
  }
  return verdicts;
}

}  // namespace tessera::job
