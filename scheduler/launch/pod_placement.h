// Which node a worker's pod runs on. The pods of an Indexed Job are alike, and the plan chose a node for each
// rank: so each pod waits at a scheduling gate until it is told its rank's node. Pure.
#pragma once

#include "nlohmann/json_fwd.hpp"
#include "scheduler/launch/launcher.h"

namespace tessera::scheduler {

// Each worker has room on each of the nodes that the plan was made for, as far as that is known.
bool FitAnywhere(const LaunchRequest& request);

// Writes the nodes of `request` and the gate into the pod template of a Job. Does nothing where the request
// names no nodes.
void AwaitPlacement(const LaunchRequest& request, nlohmann::json* pod_template);

// The merge patch that opens the gate of such a pod and binds it to the node of its rank: where they fit
// anywhere as a wish, else as a must, for the plan gave the larger part to the node that can hold it. Null:
// the pod waits at no such gate.
nlohmann::json PlacementOf(const nlohmann::json& pod);

}  // namespace tessera::scheduler
