// What a job's spec says of model and tokenizer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"
#include "worker/models/model.h"

namespace tessera::worker {

// The folder of the job's tokenizer: data.tokenizer, or where data.train lies. May hold none.
std::string TokenizerFolder(const v1::DataSpec& data);
// The same from a TrainingJobSpec as protobuf JSON; empty when it can't be read.
std::string TokenizerFolderOfJob(const std::string& spec_json);

// Whether the job's assembled model is evaluated with masked branches scaled by their holders' share.
// InvalidArgument: this is no TrainingJobSpec.
absl::StatusOr<bool> UsesEvaluationScale(const std::string& spec_json);

// preset or config_path, with the vocabulary of model.vocab_size, else of the
// tokenizer, else of the preset. InvalidArgument and Unimplemented name the field.
absl::StatusOr<std::unique_ptr<Model>> MakeJobModel(const v1::TrainingJobSpec& spec);

}  // namespace tessera::worker
