// Whether a job is right in itself, without a look at machine, files or other jobs.
#pragma once

#include <vector>

#include "proto/tessera/v1/violation.h"
#include "tessera/v1/job.pb.h"

namespace tessera::spec {

// Every fault at once, in the order of the fields; empty: valid. `job` has its
// defaults (ApplyDefaults). Asking for what this version cannot do yet is a fault
// with `unimplemented` set, never ignored. A name may be empty: the service makes one.
std::vector<Violation> Validate(const v1::TrainingJob& job);

}  // namespace tessera::spec
