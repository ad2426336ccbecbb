// Whether a job is right in itself, without a look at machine, files or other jobs.
#pragma once

#include <vector>

#include "proto/tessera/v1/violation.h"
#include "tessera/v1/job.pb.h"

namespace tessera::spec {

// Shown in place of the values of spec.env, which may be secrets; not accepted as a value.
inline constexpr char kHiddenValue[] = "***";
void HideEnvironment(v1::TrainingJob* job);

// Every fault at once, in the order of the fields; empty: valid. `job` has its
// defaults (ApplyDefaults). Asking for what this version cannot do yet is a fault
// with `unimplemented` set, never ignored. A name may be empty: the service makes one.
std::vector<Violation> Validate(const v1::TrainingJob& job);

}  // namespace tessera::spec
