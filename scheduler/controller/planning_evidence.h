// What finished jobs taught about predictions: how far a worker's measured peak went above its plan, by model
// shape. One small JSON file in the state directory, so that the next plan of the shape knows it.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/v1/job.pb.h"

namespace tessera::scheduler {

// A measured peak is as predicted unless it is above it by so much and by so many bytes: a thread that was
// preempted while it ended a sum keeps the sum's memory until it runs again, much for a tiny model alone.
inline constexpr double kNotableExcess = 1.01;
inline constexpr int64_t kNotableBytes = 1 << 20;

// The largest measured over predicted peak of the workers for which it is not as predicted; 0: there is none.
double PeakOverPlan(const v1::TrainingJobStatus& status);

// At least 1: the largest ratio recorded for the shape; 1 when there is none or the file can't be read.
double RecordedPeakOverPlan(const std::string& state_directory, uint64_t shape_fingerprint);

// Keeps the larger of what is recorded and `ratio`. The newest 256 shapes are kept. False: not written.
bool RecordPeakOverPlan(const std::string& state_directory, uint64_t shape_fingerprint, double ratio);

}  // namespace tessera::scheduler
