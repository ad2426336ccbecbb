// What a job has left in its run directory: the curves of its steps and its checkpoints.
#pragma once

#include "absl/status/statusor.h"
#include "tessera/v1/api.pb.h"

namespace tessera::services {

inline constexpr int kDefaultMetricPoints = 1000;
inline constexpr int kMaxMetricPoints = 10000;

// The points after request.after_step, in order of steps. Of more than request.max_points every n-th step is
// given, the newest and all evaluations always. Empty while nothing was written.
absl::StatusOr<v1::GetMetricsResponse> ReadMetrics(const v1::TrainingJob& job,
                                                   const v1::GetMetricsRequest& request);

// Complete checkpoints of the job, oldest first. Sizes are those of the manifests.
v1::ListCheckpointsResponse FindJobCheckpoints(const v1::TrainingJob& job);

}  // namespace tessera::services
