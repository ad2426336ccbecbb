// Jobs whose plan names a node that is gone.
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/controller/controller_loop.h"

namespace tessera::scheduler {
namespace {

// Beyond the time after which a node counts as silent: agents of a scheduler that has just started have not
// all reported yet.
constexpr absl::Duration kPatienceWithNodes = absl::Seconds(30);

std::string FirstSilent(const job::NodeBytes& claim,
                        const std::map<std::string, job::NodeMemory>& reporting) {
  for (const auto& [node, bytes] : claim) {
    if (!node.empty() && !reporting.contains(node)) return node;
  }
  return "";
}

}  // namespace

void ControllerLoop::WatchNodes(const std::map<std::string, job::NodeMemory>& reporting, absl::Time now) {
  std::string names;
  for (const auto& [node, memory] : reporting) {
    if (!node.empty()) absl::StrAppend(&names, node, " ");
  }
  for (const auto& [uid, live] : jobs_.awake()) {
    const std::string silent = live->unlaunched() ? FirstSilent(live->claim.bytes, reporting) : "";
    if (silent != live->silent_node) {
      live->silent_node = silent;
      live->silent_since = now;
      live->without_node.clear();
      live->tried_on.clear();
    }
    live->node_lost = !silent.empty() && now - live->silent_since >= kPatienceWithNodes && !names.empty() &&
                      names != live->tried_on;
    if (!live->node_lost || live->state() != job::JobState::kQueued || !live->notes.planned) continue;
    live->tried_on = names;
    live->notes.planned = false;
    live->plan_error.clear();
    live->replan_reason = absl::StrCat("node '", silent, "', which plan ", live->plan.generation(),
                                       " was made for, does not report");
  }
}

void ControllerLoop::KeepPlanOfSilentNode(LiveJob& live, const absl::Status& why) {
  live.without_node = absl::StrCat("there is no plan without it: ", why.message());
  live.replan_reason.clear();
  live.notes.planned = true;
  Event(live, true, "NodeLost",
        absl::StrCat("node '", live.silent_node, "' does not report, and ", live.without_node), Now());
  live.Touch();
  Wake();
}

}  // namespace tessera::scheduler
