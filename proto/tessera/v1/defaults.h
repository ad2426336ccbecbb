// The one place where a job's defaults stand. job.proto says them in comments.
#pragma once

#include "tessera/v1/job.pb.h"

namespace tessera::spec {

// Fills every unset field that has a default. Idempotent; never changes what is set.
// Defaults that need a machine (CPU threads, the checkpoint folder, the tokenizer's
// vocabulary) or a random number (the name) are filled by who knows them.
void ApplyDefaults(v1::TrainingJob* job);

}  // namespace tessera::spec
