#include "worker/dropping/listed_elements.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "worker/dropping/float_view.h"

namespace tessera::worker {
namespace {

constexpr int64_t kWordBits = 64;

// Calls visit(first element, bits) for every word of the selection, ascending, until it returns false.
template <typename Visit>
void ForEachWord(const Selection& selection, const Visit& visit) {
  uint64_t bitmap[Selection::kBlockWords];
  for (int64_t word = 0; word < selection.words(); word += Selection::kBlockWords) {
    const int64_t count = std::min(Selection::kBlockWords, selection.words() - word);
    selection.Read(word, absl::MakeSpan(bitmap, count));
    for (int64_t w = 0; w < count; ++w) {
      if (!visit((word + w) * kWordBits, bitmap[w])) return;
    }
  }
}

}  // namespace

void ListKept(const Selection& selection, int32_t* indices) {
  ForEachWord(selection, [&](int64_t first, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) *indices++ = static_cast<int32_t>(first + std::countr_zero(bits));
    return true;
  });
}

absl::StatusOr<std::vector<uint64_t>> JoinLists(int64_t elements,
                                                absl::Span<const absl::Span<const int32_t>> lists) {
  std::vector<uint64_t> words((elements + kWordBits - 1) / kWordBits, 0);
  for (const absl::Span<const int32_t> list : lists) {
    int64_t before = -1;
    for (const int64_t index : list) {
      if (index <= before || index >= elements) {
        return absl::InternalError(absl::StrCat("a holder has sent element ", index, " after ", before,
                                                " of a tensor of ", elements));
      }
      words[index / kWordBits] |= uint64_t{1} << (index % kWordBits);
      before = index;
    }
  }
  return words;
}

void AddListed(const Selection& selection, absl::Span<const int32_t> indices, const FloatView& values,
               float* sum) {
  WithValues(values, [&](const auto& value) {
    size_t next = 0;
    ForEachWord(selection, [&](int64_t first, uint64_t bits) {
      for (; next < indices.size() && indices[next] < first + kWordBits; ++next) {
        const uint64_t below = (uint64_t{1} << (indices[next] - first)) - 1;
        sum[std::popcount(bits & below)] += value(static_cast<int64_t>(next));
      }
      sum += std::popcount(bits);
      return next < indices.size();
    });
  });
}

}  // namespace tessera::worker
