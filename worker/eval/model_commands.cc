#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/eval/command_line.h"
#include "worker/eval/commands.h"
#include "worker/eval/export_model.h"
#include "worker/eval/generate.h"
#include "worker/eval/text_stream.h"

namespace tessera::worker {
namespace {

// CLI11's own names the largest double in full.
CLI::Validator NotNegative() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.starts_with('-') ? absl::StrCat("must not be negative: ", text) : std::string();
      },
      "");
}

}  // namespace

int RunGenerate(int argc, char** argv) {
  std::string model, prompt = "Light, n. The ";
  GenerateOptions options;
  CLI::App app("Continues a text with an exported model and writes it as it is made", "generate");
  app.add_option("--model", model, "folder with config.json, model.safetensors and tokenizer")->required();
  app.add_option("--prompt", prompt, "text to continue")->capture_default_str();
  app.add_option("--max-tokens", options.tokens, "ends here, or earlier at the end token")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--temperature", options.temperature,
                 "below 1 likely tokens become likelier; 0: always the likeliest")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--top-k", options.top_k, "draw among so many likeliest tokens; 0: all")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--seed", options.seed, "another seed, another text")->capture_default_str();
  app.add_option("--context", options.context, "tokens the model sees; best what it was trained with")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return RunCommand(app, argc, argv, [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const ExportedModel exported, OpenExportedModel(model));
    if (exported.tokenizer == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(model, " holds no tokenizer: neither ", kTokenizerFile, " nor tokenizer.json"));
    }
    const auto show = [](const std::string& text) {
      std::fputs(text.c_str(), stdout);
      std::fflush(stdout);
    };
    show(prompt);
    TextStream stream(*exported.tokenizer);
    const auto generated = Generate(exported, exported.tokenizer->Encode(prompt), options,
                                    [&](int32_t token) { show(stream.Add(token)); });
    show(stream.Rest() + "\n");
    return generated.status();
  });
}

int RunExport(int argc, char** argv) {
  CheckpointExport request;
  std::string scale;
  CLI::App app("Assembles a checkpoint into a model that transformers opens", "export");
  app.add_option("--checkpoint", request.checkpoint, "folder of a complete checkpoint (step-...)")
      ->required();
  app.add_option("--out", request.folder, "folder to make")->required();
  app.add_option("--tokenizer", request.tokenizer,
                 "folder of the tokenizer; default: that of the job's data");
  app.add_option("--residual-scale", scale,
                 "evaluation: scale masked branches by their holders' share; none; default: as the job did")
      ->check(CLI::IsMember({"evaluation", "none"}));
  app.add_flag("--overwrite", request.overwrite, "replace an earlier export");
  return RunCommand(app, argc, argv, [&]() -> absl::Status {
    if (!scale.empty()) request.evaluation_scale = scale == "evaluation";
    TESSERA_RETURN_IF_ERROR(ExportCheckpoint(request));
    if (!HoldsTokenizer(request.folder)) {
      std::fprintf(stderr,
                   "without a tokenizer: the job's data lie elsewhere now; --tokenizer names its folder\n");
    }
    std::printf("%s\n", request.folder.c_str());
    return absl::OkStatus();
  });
}

}  // namespace tessera::worker
