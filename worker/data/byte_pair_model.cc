#include "worker/data/byte_pair_model.h"

#include <algorithm>
#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/data/text_split.h"

namespace tessera::worker {
namespace {

uint64_t Key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A place where two neighbours can be joined; the earliest merge goes first, then the leftmost place.
struct Candidate {
  int32_t rank;
  int32_t left;
  int32_t piece;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

struct Symbol {
  int32_t piece;
  int32_t before, after;  // -1: none
};

}  // namespace

absl::StatusOr<BytePairModel> BytePairModel::Create(
    std::unordered_map<std::string, int32_t> vocabulary,
    const std::vector<std::pair<std::string, std::string>>& merges, BytePairOptions options) {
  BytePairModel model;
  const auto find = [&](const std::string& piece) {
    const auto found = vocabulary.find(piece);
    return found == vocabulary.end() ? -1 : found->second;
  };
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    for (const std::string& piece : {left, right, left + right}) {
      if (find(piece) < 0) {
        return absl::InvalidArgumentError(absl::StrCat("model.merges[", i, "]: '", left, "' and '", right,
                                                       "': '", piece, "' is not in model.vocab"));
      }
    }
    // Given twice, the later one counts.
    model.merges_[Key(find(left), find(right))] = {static_cast<int32_t>(i), find(left + right)};
  }
  if (!options.unknown.empty()) {
    model.unknown_ = find(options.unknown);
    if (model.unknown_ < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.unk_token: '", options.unknown, "' is not in model.vocab"));
    }
  }
  for (int byte = 0; byte < 256; ++byte) model.bytes_.push_back(find(absl::StrFormat("<0x%02X>", byte)));
  model.vocabulary_ = std::move(vocabulary);
  model.options_ = std::move(options);
  return model;
}

std::vector<int32_t> BytePairModel::Start(std::string_view word) const {
  std::vector<int32_t> pieces;
  bool after_unknown = false;
  for (std::string_view character : Characters(word)) {
    const auto found = vocabulary_.find(std::string(character));
    if (found != vocabulary_.end()) {
      pieces.push_back(found->second);
      after_unknown = false;
      continue;
    }
    const auto piece_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    const bool falls_back =
        options_.byte_fallback &&
        std::all_of(character.begin(), character.end(), [&](char byte) { return piece_of(byte) >= 0; });
    if (falls_back) {
      for (char byte : character) pieces.push_back(piece_of(byte));
      after_unknown = false;
    } else if (unknown_ >= 0 && !(after_unknown && options_.fuse_unknown)) {
      pieces.push_back(unknown_);
      after_unknown = true;
    }
  }
  return pieces;
}

void BytePairModel::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  if (options_.ignore_merges) {
    if (const auto whole = vocabulary_.find(std::string(word)); whole != vocabulary_.end()) {
      ids->push_back(whole->second);
      return;
    }
  }
  std::vector<Symbol> symbols;
  for (int32_t piece : Start(word)) {
    const auto at = static_cast<int32_t>(symbols.size());
    symbols.push_back({piece, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().after = -1;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](int32_t left) {
    if (left < 0 || symbols[left].after < 0) return;
    const auto found = merges_.find(Key(symbols[left].piece, symbols[symbols[left].after].piece));
    if (found != merges_.end()) queue.push({found->second.rank, left, found->second.piece});
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.piece < 0 || left.after < 0) continue;
    Symbol& right = symbols[left.after];
    const auto found = merges_.find(Key(left.piece, right.piece));
    if (found == merges_.end() || found->second.piece != best.piece)
      continue;  // one of them was joined meanwhile
    left.piece = best.piece;
    right.piece = -1;
    left.after = right.after;
    if (left.after >= 0) symbols[left.after].before = best.left;
    offer(left.before);
    offer(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].after) ids->push_back(symbols[i].piece);
}

}  // namespace tessera::worker
