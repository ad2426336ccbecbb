#include "worker/eval/job_data.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/image_source.h"
#include "worker/data/line_dataset.h"
#include "worker/data/synthetic_dataset.h"
#include "worker/data/token_dataset.h"

namespace tessera::worker {
namespace {

absl::StatusOr<std::unique_ptr<Dataset>> Open(const v1::DataSpec& spec, const std::string& pattern,
                                              DataPart part, const ModelInput& input) {
  switch (spec.format()) {
    case v1::DATA_FORMAT_IMAGES: {
      TESSERA_ASSIGN_OR_RETURN(auto images, OpenImages(pattern, part, input.height));
      const bool augmentation = !spec.has_augmentation() || spec.augmentation();
      return MakeImageDataset(std::move(images), {.augmentation = augmentation, .channels = input.channels});
    }
    case v1::DATA_FORMAT_LINES: {
      TESSERA_ASSIGN_OR_RETURN(TextCodec codec, OpenTextCodec(spec.tokenizer()));
      return OpenLines(pattern, std::move(codec), spec.sequence_length(), input.task);
    }
    case v1::DATA_FORMAT_SYNTHETIC: {
      constexpr int64_t kSamples = 65536;
      return MakeSyntheticDataset(input, kSamples, spec.sequence_length(),
                                  part == DataPart::kTraining ? 1 : 2);
    }
    default: {
      TESSERA_ASSIGN_OR_RETURN(auto tokens, OpenTokenDataset(pattern, part));
      return MakeTokenSamples(std::move(tokens), spec.sequence_length());
    }
  }
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenChecked(const v1::DataSpec& spec, const char* field,
                                                     const std::string& pattern, DataPart part,
                                                     const ModelInput& input) {
  auto data = Open(spec, pattern, part, input);
  const absl::Status status = data.ok() ? (*data)->Check(input) : data.status();
  if (status.ok()) return data;
  return absl::Status(status.code(), absl::StrCat("spec.data.", field, ": ", status.message()));
}

}  // namespace

absl::StatusOr<JobData> OpenJobData(const v1::TrainingJobSpec& spec, const ModelInput& input) {
  const v1::DataSpec& data = spec.data();
  JobData opened;
  TESSERA_ASSIGN_OR_RETURN(opened.train,
                           OpenChecked(data, "train", data.train(), DataPart::kTraining, input));
  if (data.validation().empty()) return opened;
  TESSERA_ASSIGN_OR_RETURN(opened.validation,
                           OpenChecked(data, "validation", data.validation(), DataPart::kValidation, input));
  return opened;
}

}  // namespace tessera::worker
