#include "scheduler/job/admission.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::job {
namespace {

std::string Megabytes(int64_t bytes) { return absl::StrFormat("%.0f MB", static_cast<double>(bytes) / 1e6); }

int64_t At(const NodeBytes& bytes, const std::string& node) {
  const auto it = bytes.find(node);
  return it == bytes.end() ? 0 : it->second;
}

// Who has what of a node, largest first.
std::string Holders(std::vector<const Claim*> holders, const std::string& node) {
  constexpr size_t kNamed = 3;
  std::erase_if(holders, [&](const Claim* claim) { return At(claim->demand.bytes, node) == 0; });
  std::stable_sort(holders.begin(), holders.end(), [&](const Claim* a, const Claim* b) {
    return At(a->demand.bytes, node) > At(b->demand.bytes, node);
  });
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, holders.size()); ++i) {
    absl::StrAppendFormat(&text, "%s'%s' holds %s", i == 0 ? "" : ", ", holders[i]->name,
                          Megabytes(At(holders[i]->demand.bytes, node)));
  }
  if (holders.size() > kNamed) absl::StrAppendFormat(&text, ", %d others less", holders.size() - kNamed);
  return text;
}

// What has been given of one node's memory.
struct Ledger {
  NodeMemory memory;
  bool reports = false;
  int64_t held = 0;                // promised
  int64_t untaken = 0;             // of that, not used yet
  const Claim* blocker = nullptr;  // does not fit here and has waited too long to be overtaken

  bool known() const { return memory.for_jobs > 0; }
  int64_t unpromised() const { return std::max<int64_t>(0, memory.for_jobs - held); }
  int64_t unused() const {  // by anybody, and not promised
    return memory.available < 0 ? unpromised() : std::max<int64_t>(0, memory.available - untaken);
  }
  int64_t free() const { return std::min(unpromised(), unused()); }
};

std::string Gpus(int count) { return absl::StrCat(count, count == 1 ? " GPU" : " GPUs"); }

// The machine's GPUs: whole ones, each of one job.
struct GpuLedger {
  int total = 0;  // 0: unknown
  int held = 0;
  const Claim* blocker = nullptr;  // as of a Ledger

  bool counts(const Claim& claim) const { return total > 0 && claim.demand.gpus > 0; }
  int free() const { return std::max(0, total - held); }
};

class Nodes {
 public:
  Nodes(const std::map<std::string, NodeMemory>& nodes, int gpus)
      : alone_(nodes.size() <= 1), gpus_{.total = gpus} {
    for (const auto& [name, memory] : nodes) ledgers_[name] = {.memory = memory, .reports = true};
  }

  void Give(const Claim& claim) {
    for (const auto& [node, bytes] : claim.demand.bytes) {
      Ledger& ledger = ledgers_[node];
      ledger.held += bytes;
      ledger.untaken += std::max<int64_t>(0, bytes - At(claim.resident, node));
    }
    gpus_.held += claim.demand.gpus;
    holders_.push_back(&claim);
  }

  Verdict Ask(const Claim& claim, absl::Time now) {
    std::string never = WhyNever(claim);
    if (!never.empty()) return {false, std::move(never)};
    const bool waited_long = now - claim.waiting_since >= kBackfillWindow;
    for (const auto& [node, bytes] : claim.demand.bytes) {
      const Ledger& ledger = ledgers_[node];
      if (!ledger.known()) continue;
      if (ledger.blocker != nullptr) {
        return {false,
                absl::StrFormat("waits behind job '%s', which needs %s; %s of %s are free%s",
                                ledger.blocker->name, Megabytes(At(ledger.blocker->demand.bytes, node)),
                                Megabytes(ledger.free()), Megabytes(ledger.memory.for_jobs), On(node))};
      }
      if (bytes <= ledger.free()) continue;
      Verdict verdict{false, WhyNot(claim, node, ledger)};
      if (waited_long) Block(claim);
      return verdict;
    }
    if (gpus_.counts(claim)) {
      if (gpus_.blocker != nullptr) {
        return {false, absl::StrFormat("waits behind job '%s', which needs %s; %d of %d are free",
                                       gpus_.blocker->name, Gpus(gpus_.blocker->demand.gpus), gpus_.free(),
                                       gpus_.total)};
      }
      if (claim.demand.gpus > gpus_.free()) {
        if (waited_long) gpus_.blocker = &claim;
        return {false, WhyNoGpus(claim)};
      }
    }
    return {true, Given(claim)};
  }

 private:
  std::string Name(const std::string& node) const {
    if (node.empty() && !alone_) return "all nodes together";
    return alone_ ? "this machine" : absl::StrCat("node '", node, "'");
  }
  std::string On(const std::string& node) const { return alone_ ? "" : absl::StrCat(" on ", Name(node)); }

  // Empty: some day it may fit.
  std::string WhyNever(const Claim& claim) {
    for (const auto& [node, bytes] : claim.demand.bytes) {
      const Ledger& ledger = ledgers_[node];
      if (!ledger.reports)
        return absl::StrCat("waits for node '", node, "', which it was planned for, to report again");
      if (ledger.known() && bytes > ledger.memory.for_jobs) {
        return absl::StrFormat("needs %s, more than the %s of %s", Megabytes(bytes),
                               Megabytes(ledger.memory.for_jobs), Name(node));
      }
    }
    if (gpus_.counts(claim) && claim.demand.gpus > gpus_.total) {
      return absl::StrCat("needs ", Gpus(claim.demand.gpus), ", more than the ", gpus_.total,
                          " of this machine");
    }
    return "";
  }

  std::string Given(const Claim& claim) {
    std::string given;
    for (const auto& [node, bytes] : claim.demand.bytes) {
      const Ledger& ledger = ledgers_[node];
      if (!ledger.known()) continue;
      absl::StrAppendFormat(&given, "%s%s of %s%s", given.empty() ? "given " : ", ", Megabytes(bytes),
                            Megabytes(ledger.memory.for_jobs), On(node));
    }
    if (given.empty()) given = "admitted; the memory of this machine is not known";
    if (gpus_.counts(claim))
      absl::StrAppendFormat(&given, ", %d of %s", claim.demand.gpus, Gpus(gpus_.total));
    return given;
  }

  std::string WhyNoGpus(const Claim& claim) const {
    std::string holders;
    for (const Claim* holder : holders_) {
      if (holder->demand.gpus == 0) continue;
      absl::StrAppend(&holders, holders.empty() ? ": '" : ", '", holder->name, "' holds ",
                      holder->demand.gpus);
    }
    return absl::StrFormat("needs %s; %d of %d are free; starts when %d more are%s", Gpus(claim.demand.gpus),
                           gpus_.free(), gpus_.total, claim.demand.gpus - gpus_.free(), holders);
  }

  std::string WhyNot(const Claim& claim, const std::string& node, const Ledger& ledger) const {
    const int64_t needed = At(claim.demand.bytes, node), free = ledger.free();
    std::string text =
        absl::StrFormat("needs %s%s; %s of %s are free; starts when %s more are", Megabytes(needed), On(node),
                        Megabytes(free), Megabytes(ledger.memory.for_jobs), Megabytes(needed - free));
    if (needed > ledger.unpromised()) absl::StrAppend(&text, ": ", Holders(holders_, node));
    if (ledger.unused() < std::min(needed, ledger.unpromised())) {
      absl::StrAppend(&text, "; other programs use ", Megabytes(ledger.unpromised() - ledger.unused()),
                      " that jobs could have");
    }
    return text;
  }
  void Block(const Claim& claim) {
    for (const auto& [node, bytes] : claim.demand.bytes) ledgers_[node].blocker = &claim;
    if (gpus_.counts(claim)) gpus_.blocker = &claim;
  }

  const bool alone_;
  GpuLedger gpus_;
  std::map<std::string, Ledger> ledgers_;
  std::vector<const Claim*> holders_;
};

}  // namespace

std::map<std::string, Verdict> Admit(absl::Span<const Claim> claims,
                                     const std::map<std::string, NodeMemory>& memory, absl::Time now,
                                     int gpus) {
  Nodes nodes(memory, gpus);
  std::vector<const Claim*> waiting;
  for (const Claim& claim : claims) {
    if (claim.holds) {
      nodes.Give(claim);
    } else if (claim.waits) {
      waiting.push_back(&claim);
    }
  }
  std::sort(waiting.begin(), waiting.end(), [](const Claim* a, const Claim* b) {
    return std::tie(b->priority, a->created, a->id) < std::tie(a->priority, b->created, b->id);
  });
  std::map<std::string, Verdict> verdicts;
  for (const Claim* claim : waiting) {
    Verdict& verdict = verdicts[claim->id] = nodes.Ask(*claim, now);
    if (verdict.admitted) nodes.Give(*claim);
  }
  return verdicts;
}

}  // namespace tessera::job
