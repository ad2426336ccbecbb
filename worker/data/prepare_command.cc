#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "worker/data/prepare.h"
#include "worker/eval/commands.h"

namespace tessera::worker {
namespace {

void ShowProgress(const std::string& phase, double share) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  static int told = -1;
  const int percent = static_cast<int>(share * 100);
  // A terminal gets a line that changes, a file one line per quarter.
  if (!terminal && percent / 25 == told) return;
  told = percent / 25;
  std::fprintf(stderr, terminal ? "\r%s %d %%\033[K" : "%s %d %%\n", phase.c_str(), percent);
  if (terminal && percent == 100) std::fputc('\n', stderr);
}

}  // namespace

int RunPrepare(int argc, char** argv) {
  PrepareOptions options;
  CLI::App app("Turns text into token shards and a tokenizer", "prepare");
  app.add_option("--input", options.inputs,
                 "texts, one or more: plain, gzip or dictzip; *.jsonl(.gz): the field \"text\" of each line. "
                 "Parquet is refused: Debian has no library for it, convert it to JSON lines")
      ->required();
  app.add_option("--out", options.output,
                 "folder to make (DIR below); one that holds this very dataset is left alone")
      ->required();
  app.add_option("--tokenizer", options.tokenizer,
                 "byte: every byte is a token; bpe: pieces learnt from the text")
      ->capture_default_str();
  app.add_option("--vocab-size", options.vocab_size, "pieces of bpe")->capture_default_str();
  app.add_option("--validation-fraction", options.validation_fraction,
                 "share of the text kept for validation")
      ->capture_default_str();
  app.add_option("--shard-tokens", options.shard_tokens, "tokens of a shard at most")->capture_default_str();
  app.footer(
      "Examples:\n"
      "  tessera data prepare --input book.txt --out data/book     bytes as tokens, nothing to "
      "train\n"
      "  tessera data prepare --input a.txt --input b.txt.gz --out data/both \\\n"
      "      --tokenizer bpe --vocab-size 8192                pieces learnt from the text\n"
      "\nDIR then holds train-*.bin, validation-*.bin, the tokenizer and dataset.json. A job names them as\n"
      "  data: {train: DIR, validation: DIR}\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto report = PrepareTokens(options, ShowProgress);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", std::string(report.status().message()).c_str());
    return absl::IsInvalidArgument(report.status()) ? 3 : 1;
  }
  std::printf("%s: %lld bytes of text, %lld training and %lld validation tokens, vocabulary %lld%s\n",
              options.output.c_str(), static_cast<long long>(report->text_bytes),
              static_cast<long long>(report->train_tokens), static_cast<long long>(report->validation_tokens),
              static_cast<long long>(report->vocab_size),
              report->already_there ? " (was there already)" : "");
  return 0;
}

}  // namespace tessera::worker
