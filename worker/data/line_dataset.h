// Texts, one a line, for models that read a text as a whole.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace tessera::worker {

// What turns a line into tokens.
struct TextCodec {
  std::function<std::vector<int32_t>(std::string_view text)> encode;
  int64_t vocab_size = 0;
  int32_t begin = 0, end = 0, padding = 0, mask = 0;
};

// folder: a vocab.txt of BERT. Without one, bytes: 256 begins and 257 ends a text, 258 pads, 259 masks.
absl::StatusOr<TextCodec> OpenTextCodec(const std::string& folder);

// The texts as one batch, each between begin and end, cut to `length` tokens and padded to the longest.
Batch EncodeTexts(const TextCodec& codec, const std::vector<std::string>& texts, int64_t length);

// pattern: a file or a glob; lines that are empty are left out. For a classifier a line is a label from 0, a
// tabulator and the text. Otherwise 15 % of the tokens are to be told: of those 80 % stand as mask, 10 % as
// some other token and 10 % as they are (Devlin et al., 2019); which ones is a function of the sample's draw,
// and of its index where that is 0.
absl::StatusOr<std::unique_ptr<Dataset>> OpenLines(const std::string& pattern, TextCodec codec,
                                                   int64_t length, Task task);

}  // namespace tessera::worker
