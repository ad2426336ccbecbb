// tokenizer.json and tokenizer_config.json, as transformers.AutoTokenizer opens them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tessera::worker {

// The byte-level tokenizer as a byte-pair encoding without merges: id b is byte b.
absl::Status SaveHuggingFaceByteTokenizer(const std::string& folder);

// pieces: by id, as SentencePiece writes them (spaces as U+2581, bytes as <0x41>),
// learnt ones in the order they were learnt; the first three are <unk>, <s>, </s>.
absl::Status SaveHuggingFaceBpeTokenizer(const std::string& folder, const std::vector<std::string>& pieces);

}  // namespace tessera::worker
