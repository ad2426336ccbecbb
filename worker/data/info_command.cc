#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/image_source.h"
#include "worker/data/line_dataset.h"
#include "worker/data/token_dataset.h"
#include "worker/eval/commands.h"

namespace tessera::worker {
namespace {

void ShowTokens(const TokenDataset& tokens) {
  const char* kind = tokens.max_token() < 256     ? "bytes"
                     : tokens.max_token() < 65536 ? "GPT-2, uint16"
                                                  : "Llama 3, uint32";
  std::printf("token shards (%s): %lld tokens, %lld samples of 256\n", kind,
              static_cast<long long>(tokens.tokens()), static_cast<long long>(tokens.samples(256)));
}

void ShowImages(const ImageSource& images) {
  std::map<int64_t, int64_t> labels;
  for (int64_t i = 0; i < images.images(); ++i) ++labels[images.label(i)];
  const ImageFormat& format = images.format();
  std::printf("images: %lld of %lld x %lld x %lld, labels %lld to %lld\n",
              static_cast<long long>(images.images()), static_cast<long long>(format.channels),
              static_cast<long long>(format.height), static_cast<long long>(format.width),
              static_cast<long long>(labels.begin()->first), static_cast<long long>(labels.rbegin()->first));
  for (const auto& [label, count] : labels) {
    std::printf("  label %lld: %lld\n", static_cast<long long>(label), static_cast<long long>(count));
  }
}

absl::Status Show(const std::string& path, DataPart part) {
  // The format is what opens it; of two complaints that of the likelier format is told.
  if (absl::EndsWith(path, ".txt") || absl::EndsWith(path, ".tsv")) {
    TESSERA_ASSIGN_OR_RETURN(const auto lines, OpenLines(path, *OpenTextCodec(""), 256, Task::kMaskedToken));
    std::printf("lines: %lld texts\n", static_cast<long long>(lines->samples()));
    return absl::OkStatus();
  }
  const auto tokens = OpenTokenDataset(path, part);
  if (tokens.ok()) {
    ShowTokens(**tokens);
    return absl::OkStatus();
  }
  const auto images = OpenImages(path, part, /*size=*/224);
  if (images.ok()) {
    ShowImages(**images);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("as token shards: ", tokens.status().message(),
                                                 "\nas images: ", images.status().message()));
}

}  // namespace

int RunInfo(int argc, char** argv) {
  std::string path;
  bool validation = false;
  CLI::App app("Tells what a data set holds and whether it is whole", "info");
  app.add_option("path", path, "file, folder or pattern, as a job's spec.data.train")->required();
  app.add_flag("--validation", validation, "of a folder the validation part");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const absl::Status status = Show(path, validation ? DataPart::kValidation : DataPart::kTraining);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 3;
}

}  // namespace tessera::worker
