// A small valid job.
#pragma once

#include <string>

#include "tessera/v1/job.pb.h"

namespace tessera::services {

inline v1::TrainingJob SmallJob(const std::string& name) {
  v1::TrainingJob job;
  job.set_name(name);
  job.mutable_spec()->mutable_model()->set_preset("llama-8m");
  job.mutable_spec()->mutable_data()->set_train("/data");
  job.mutable_spec()->mutable_schedule()->set_steps(100);
  return job;
}

}  // namespace tessera::services
