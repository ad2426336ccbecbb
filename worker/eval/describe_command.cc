#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/wire/plan_wire.h"
#include "worker/device/gpu_choice.h"
#include "worker/eval/command_line.h"
#include "worker/eval/commands.h"
#include "worker/eval/communicator_memory.h"
#include "worker/eval/job_data.h"
#include "worker/eval/job_model.h"
#include "worker/nn/autocast.h"
#include "worker/profile/describe.h"
#include "worker/profile/out_of_memory.h"

namespace tessera::worker {
namespace {

constexpr int64_t kDefaultBatch = 4, kDefaultSequenceLength = 256;
// Of a GPU's memory, beside tensors. Not measured here: upper ends of what is told of such devices.
constexpr int64_t kCudaContextBytes = 600'000'000, kNcclCommunicatorBytes = 700'000'000;

// elsewhere: workers run on other machines, which are not looked at.
absl::Status Describe(bool elsewhere) {
  OfferToOutOfMemoryKiller();  // rather than the scheduler or a training beside it
  const std::string input{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  v1::TrainingJobSpec spec;
  if (const auto parsed = google::protobuf::util::JsonStringToMessage(input, &spec); !parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("stdin is no TrainingJobSpec: ", parsed.ToString()));
  }
  if (spec.resources().gpus() > 0 && !elsewhere) TESSERA_RETURN_IF_ERROR(CheckGpus(spec, FindGpus()));
  TESSERA_ASSIGN_OR_RETURN(const auto model, MakeJobModel(spec));
  if (model->input().vocab_size == 0) {
    spec.mutable_data()->set_sequence_length(1);  // an image is one token, whatever the job says
  } else if (!spec.data().has_sequence_length()) {
    spec.mutable_data()->set_sequence_length(kDefaultSequenceLength);
  }
  int64_t samples = 0;
  if (!spec.data().train().empty() || spec.data().format() == v1::DATA_FORMAT_SYNTHETIC) {
    // Data that can't be read or used are a fault of the job that is told before anything is started.
    const auto data = OpenJobData(spec, model->input());
    if (!data.ok()) return absl::InvalidArgumentError(data.status().message());
    samples = data->train->samples();
  }
  // Before the rest of the process is measured, which then has what all communicators have in common.
  const int64_t communicator = spec.resources().gpus() > 0 ? kNcclCommunicatorBytes : MeasureCommunicator();
  const Autocast autocast(spec.precision() == v1::PRECISION_BF16);
  TESSERA_ASSIGN_OR_RETURN(
      plan::ModelShape shape,
      DescribeModel(*model, spec.workers().has_batch() ? spec.workers().batch() : kDefaultBatch,
                    spec.data().sequence_length()));
  shape.training_samples = samples;
  if (spec.resources().gpus() > 0) {
    shape.process = {.base = kCudaContextBytes, .slack = 0};
  }
  shape.process.communicator = communicator;
  std::string output;
  if (!google::protobuf::util::MessageToJsonString(wire::ToMessage(shape), &output).ok()) {
    return absl::InternalError("the shape has no JSON form");
  }
  std::printf("%s\n", output.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunDescribe(int argc, char** argv) {
  CLI::App app("Reads a TrainingJobSpec (protobuf JSON) from stdin and prints its ModelShape", "describe");
  bool elsewhere = false;
  app.add_flag("--elsewhere", elsewhere, "workers run on other machines: do not look for GPUs on this one");
  return RunCommand(app, argc, argv, [&elsewhere] { return Describe(elsewhere); });
}

}  // namespace tessera::worker
