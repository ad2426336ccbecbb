// The CustomResourceDefinition of TrainingJob, made from the proto: what the chart installs.
#pragma once

#include "nlohmann/json.hpp"

namespace tessera::services {

// apiextensions.k8s.io/v1 with a structural schema. Unknown fields are refused by kubectl's strict validation
// and pruned otherwise. No defaults: the object stays as it was written, and the API shows the resolved job.
// What can't be changed after submission is refused by rules.
nlohmann::ordered_json TrainingJobDefinition();

}  // namespace tessera::services
