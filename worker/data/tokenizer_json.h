// Reads the tokenizer.json of Hugging Face's tokenizers: byte-level BPE (GPT-2, Llama 3 and their kin) and
// SentencePiece-style BPE with byte fallback (Llama 2). What these families do not use is refused by its
// name, as ignoring it would give other tokens.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/tokenizer.h"

namespace tessera::worker {

// folder: tokenizer.json, and tokenizer_config.json for begin and end token. Added tokens are found in the
// text, and what the post-processor puts around a text is added by EncodeWhole alone. NotFound: there is no
// tokenizer.json. DataLoss: a file is no JSON or lacks a field. Unimplemented names the part that is not
// known.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizerJson(const std::string& folder);

}  // namespace tessera::worker
