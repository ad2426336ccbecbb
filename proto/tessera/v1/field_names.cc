#include "proto/tessera/v1/field_names.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace tessera::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

std::string Normalised(const std::string& word) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(word, {{"_", ""}, {"-", ""}}));
}

int EditDistance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

void AddElsewhere(const Descriptor* type, const std::string& key, const std::string& prefix, int depth,
                  std::vector<std::string>* found) {
  if (depth == 0) return;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const std::string path = absl::StrCat(prefix, field->json_name());
    if (Normalised(field->name()) == key) found->push_back(path);
    if (field->message_type() != nullptr && !field->is_repeated() && field->json_name() != "status") {
      AddElsewhere(field->message_type(), key, path + ".", depth - 1, found);
    }
  }
}

}  // namespace

const FieldDescriptor* FindField(const Descriptor* type, const std::string& key) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->json_name() == key || field->name() == key) return field;
  }
  return nullptr;
}

std::vector<std::string> FindElsewhere(const Descriptor* type, const std::string& word,
                                       const std::string& prefix, int depth) {
  std::vector<std::string> found;
  AddElsewhere(type, Normalised(word), prefix, depth, &found);
  return found;
}

std::string Nearest(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string wanted = Normalised(word).substr(0, 64);
  std::string best;
  int least = 1 + std::min<int>(3, static_cast<int>(wanted.size()) / 3);
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(wanted, Normalised(candidate));
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

const EnumValueDescriptor* FindEnumValue(const EnumDescriptor* type, std::string_view text) {
  const std::string wanted =
      absl::StrReplaceAll(absl::AsciiStrToLower(absl::string_view(text.data(), text.size())), {{"-", "_"}});
  for (int i = 0; i < type->value_count(); ++i) {
    const EnumValueDescriptor* value = type->value(i);
    if (value->number() == 0) continue;
    if (ShortEnumName(value) == wanted || absl::AsciiStrToLower(value->name()) == wanted) return value;
  }
  return nullptr;
}

std::string ShortEnumName(const EnumValueDescriptor* value) {
  // All values of a type share the prefix that the zero value, *_UNSPECIFIED, shows.
  absl::string_view prefix = value->type()->value(0)->name();
  if (!absl::ConsumeSuffix(&prefix, "UNSPECIFIED")) prefix = "";
  return absl::AsciiStrToLower(absl::StripPrefix(value->name(), prefix));
}

}  // namespace tessera::spec
