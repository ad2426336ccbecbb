// Text of tokens as they come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/tokenizer.h"

namespace tessera::worker {

// A token may be a part of a character, and what it stands for may depend on its predecessor: text is
// handed out once its characters are whole. All parts together are Decode of all tokens.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string Add(int32_t token);
  std::string Rest();  // at the end: what is left of an unfinished character

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;
  size_t told_ = 0;  // bytes of their text
};

}  // namespace tessera::worker
