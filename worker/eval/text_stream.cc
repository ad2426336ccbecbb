#include "worker/eval/text_stream.h"

#include <algorithm>
#include <string_view>

namespace tessera::worker {
namespace {

// Bytes at the end that begin a character without ending it, as far as its first byte tells.
size_t UnfinishedBytes(const std::string& text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;  // a continuation
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// What a tokenizer puts for bytes that are no character (yet).
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

std::string TextStream::Add(int32_t token) {
  tokens_.push_back(token);
  const std::string text = tokenizer_.Decode(tokens_);
  size_t end = text.size() - UnfinishedBytes(text);
  while (std::string_view(text).substr(0, end).ends_with(kReplacement)) end -= kReplacement.size();
  if (end <= told_) return {};
  std::string part = text.substr(told_, end - told_);
  told_ = end;
  return part;
}

std::string TextStream::Rest() {
  const std::string text = tokenizer_.Decode(tokens_);
  std::string part = text.size() > told_ ? text.substr(told_) : "";
  told_ = text.size();
  return part;
}

}  // namespace tessera::worker
