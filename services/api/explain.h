// Why a job is where it is, in sentences with numbers.
#pragma once

#include <vector>

#include "tessera/v1/api.pb.h"

namespace tessera::services {

// Pure. `plans` and `events` are newest last. The response carries the newest plan.
v1::ExplainTrainingJobResponse ExplainJob(const v1::TrainingJob& job, const std::vector<v1::Plan>& plans,
                                          const std::vector<v1::Event>& events);

}  // namespace tessera::services
