#include "scheduler/launch/pod_placement.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;

constexpr char kGate[] = "tessera.dev/placement";
constexpr char kNodes[] = "tessera.dev/nodes";           // annotation: a JSON array, by rank
constexpr char kBinding[] = "tessera.dev/node-binding";  // annotation
constexpr char kWish[] = "preferred";
constexpr char kMust[] = "required";
constexpr char kRank[] = "batch.kubernetes.io/job-completion-index";
constexpr int kWeight = 100;  // the largest there is

Json AffinityTo(const std::string& node, bool must) {
  const Json term = {
      {"matchFields", Json::array({{{"key", "metadata.name"}, {"operator", "In"}, {"values", {node}}}})}};
  if (must) {
    return {{"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", Json::array({term})}}}};
  }
  return {{"preferredDuringSchedulingIgnoredDuringExecution",
           Json::array({{{"weight", kWeight}, {"preference", term}}})}};
}

}  // namespace

bool FitAnywhere(const LaunchRequest& request) {
  return request.least_limit_bytes == 0 || request.memory_bytes <= request.least_limit_bytes;
}

void AwaitPlacement(const LaunchRequest& request, Json* pod_template) {
  const bool named = std::all_of(request.nodes.begin(), request.nodes.end(),
                                 [](const std::string& node) { return !node.empty(); });
  if (request.nodes.empty() || !named) return;
  (*pod_template)["metadata"]["annotations"] = {{kNodes, Json(request.nodes).dump()},
                                                {kBinding, FitAnywhere(request) ? kWish : kMust}};
  (*pod_template)["spec"]["schedulingGates"] = Json::array({{{"name", kGate}}});
}

Json PlacementOf(const Json& pod) {
  const Json gates = pod.value("/spec/schedulingGates"_json_pointer, Json::array());
  Json others = Json::array();
  for (const Json& gate : gates) {
    if (gate.value("name", "") != kGate) others.push_back(gate);
  }
  if (others.size() == gates.size() || pod["metadata"].contains("deletionTimestamp")) return nullptr;
  Json spec = {{"schedulingGates", std::move(others)}};
  const Json annotations = pod["metadata"].value("annotations", Json::object());
  const Json nodes = Json::parse(annotations.value(kNodes, ""), nullptr, /*allow_exceptions=*/false);
  size_t rank = 0;
  if (nodes.is_array() && absl::SimpleAtoi(annotations.value(kRank, ""), &rank) && rank < nodes.size() &&
      nodes[rank].is_string()) {
    spec["affinity"]["nodeAffinity"] =
        AffinityTo(nodes[rank].get<std::string>(), annotations.value(kBinding, "") == kMust);
  }
  return {{"spec", std::move(spec)}};
}

}  // namespace tessera::scheduler
