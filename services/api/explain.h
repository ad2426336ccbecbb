// Why a job is where it is, in sentences with numbers.
#pragma once

#include <vector>

#include "tessera/v1/api.pb.h"

namespace tessera::services {

// Pure. `plans` and `events` are newest last; `others` are jobs a waiting one may wait for, those that hold
// no memory are passed over. The response carries the newest plan.
v1::ExplainTrainingJobResponse ExplainJob(const v1::TrainingJob& job, const std::vector<v1::Plan>& plans,
                                          const std::vector<v1::Event>& events,
                                          const std::vector<v1::TrainingJob>& others = {});

}  // namespace tessera::services
