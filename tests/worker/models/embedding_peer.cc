// embedding_peer MODEL LINES OUT: sentence embeddings of an encoder in the layout of sentence-transformers
// (mean over the tokens, of length 1), one row a line, as safetensors. tests/peers/embedding_test.py compares
// them.
#include <torch/types.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/strip.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/line_dataset.h"
#include "worker/data/text_file.h"
#include "worker/models/model.h"
#include "worker/models/text_encoder.h"

namespace tessera::worker {
namespace {

class Everything final : public BlockRunner {
 public:
  at::Tensor Run(int, const at::Tensor& x, const BlockBody& body) override { return body(x, 1); }
};

int Embed(const std::string& folder, const std::string& lines, const std::string& out) {
  const at::NoGradGuard no_grad;
  const auto model = *MakeModel({.config_json = *ReadTextFile(folder + "/config.json")});
  const auto file = *SafetensorsFile::Open(folder + "/model.safetensors");
  Weights weights;
  for (const plan::Parameter& p : model->shape().parameters) {
    const std::string name(absl::StripPrefix(p.name, "bert."));  // files of a bare encoder
    weights.push_back(file->Has(name) ? *file->Read(name) : at::zeros(p.dims));
  }
  std::vector<std::string> texts;
  std::ifstream input(lines);
  for (std::string line; std::getline(input, line);) texts.push_back(line);
  const Batch batch = EncodeTexts(*OpenTextCodec(folder), texts, 256);
  Everything runner;
  const at::Tensor hidden = dynamic_cast<const TextEncoder&>(*model).Encode(weights, batch, runner);
  const at::Tensor seen = batch.padding.logical_not().to(at::kFloat).unsqueeze(2);
  const at::Tensor mean = (hidden * seen).sum(1) / seen.sum(1);
  const at::Tensor embeddings = mean / mean.norm(2, 1, /*keepdim=*/true);
  return WriteSafetensors(out, {{"embeddings", embeddings}, {"tokens", batch.inputs}}).ok() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  if (argc == 4) return tessera::worker::Embed(argv[1], argv[2], argv[3]);
  std::fprintf(stderr, "usage: embedding_peer MODEL LINES OUT\n");
  return 2;
}
