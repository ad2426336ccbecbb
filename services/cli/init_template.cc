#include "services/cli/init_template.h"

#include "absl/strings/str_replace.h"

namespace tessera::cli {
namespace {

constexpr char kTemplate[] =
    R"yaml(# A training job. Check it with `tessera validate FILE`, see what it needs with `tessera plan FILE`,
# run it with `tessera train FILE`. `tessera validate FILE -o yaml` shows every field with its default.
apiVersion: tessera.dev/v1
kind: TrainingJob
metadata:
  name: NAME                # lower-case letters, digits and '-'
spec:
  model:
    preset: PRESET          # or configPath: a Hugging Face config.json
  data:                     # made with: tessera data prepare --input TEXT --tokenizer byte --out data
    train: data/train-*.bin
    validation: data/validation-*.bin
    sequenceLength: 256     # tokens per sample
  workers:
    count: 4                # processes that train together
    batch: 2                # samples per worker and step
  subnetwork:
    coverage: 0.5           # share of the blocks that each worker holds; 1 is plain data parallelism
    minHolders: 2           # workers that hold each block, at least
  optimizer:
    learningRate: 1.0e-3
  schedule:
    steps: 1000
  evaluation:
    interval: 100           # steps between evaluations of the assembled model
  checkpoint:
    interval: 200           # steps; resuming loses at most these
  # resources:
  #   memoryLimitBytes: 1Gi     # per worker; what does not fit is refused with the coverage that does
)yaml";

}  // namespace

std::string InitTemplate(const std::string& name, const std::string& preset) {
  return absl::StrReplaceAll(kTemplate, {{"NAME ", name + " "}, {"PRESET ", preset + " "}});
}

}  // namespace tessera::cli
