#include "proto/tessera/v1/message_reader.h"

#include <google/protobuf/field_mask.pb.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/tessera/v1/field_names.h"
#include "proto/tessera/v1/quantity.h"

namespace tessera::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class Reader {
 public:
  Reader(const Message& root, std::string prefix, std::vector<Violation>* violations)
      : root_(root.GetDescriptor()), prefix_(std::move(prefix)), violations_(violations) {}

  void Read(const Tree& tree, const std::string& path, Message* message) {
    if (tree.kind != Tree::Kind::kMap) {
      Fail(tree, path, "must be a mapping of fields", "");
      return;
    }
    std::set<const FieldDescriptor*> seen;
    for (const Tree& item : tree.items) {
      if (violations_->size() >= kMaxTextViolations) return;
      const FieldDescriptor* field = FindField(message->GetDescriptor(), item.key);
      const std::string at = Join(path, field != nullptr ? field->json_name() : item.key);
      if (field == nullptr) {
        Unknown(item, at, message->GetDescriptor());
        continue;
      }
      if (!seen.insert(field).second) {
        if (field->name() != field->json_name()) AlsoAs(item, at, field, tree);
        continue;
      }
      if (item.kind == Tree::Kind::kNull) continue;  // not set
      if (const auto* oneof = field->real_containing_oneof();
          oneof != nullptr && message->GetReflection()->HasOneof(*message, oneof)) {
        Fail(item, at, "excludes another field that is set", "keep one of them");
        continue;
      }
      ReadField(item, at, field, message);
    }
  }

 private:
  static std::string Join(const std::string& path, const std::string& name) {
    return path.empty() ? name : absl::StrCat(path, ".", name);
  }

  void Fail(const Tree& tree, const std::string& path, std::string message, std::string remedy) {
    violations_->push_back({.path = path,
                            .value = Display(tree),
                            .message = std::move(message),
                            .remedy = std::move(remedy),
                            .line = tree.line});
  }

  void AlsoAs(const Tree& item, const std::string& path, const FieldDescriptor* field, const Tree& tree) {
    const bool twice = std::count_if(tree.items.begin(), tree.items.end(),
                                     [&](const Tree& other) { return other.key == item.key; }) > 1;
    if (twice) return;  // the text's own complaint
    violations_->push_back({.path = path,
                            .message = "is given twice, in two spellings",
                            .remedy = absl::StrCat("keep ", field->json_name(), " or ", field->name()),
                            .line = item.line});
  }

  void Unknown(const Tree& item, const std::string& path, const Descriptor* type) {
    std::vector<std::string> names;
    for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->json_name());
    std::string remedy;
    if (const std::string near = Nearest(item.key, names); !near.empty()) {
      remedy = absl::StrCat("did you mean ", near, "?");
    } else {
      const std::vector<std::string> elsewhere = FindElsewhere(root_, item.key, prefix_, 4);
      if (!elsewhere.empty() && elsewhere.size() <= 2) {
        remedy = absl::StrCat("did you mean ", absl::StrJoin(elsewhere, " or "), "?");
      } else if (names.empty()) {
        remedy = "remove it; nothing can be set here";
      } else {
        remedy = absl::StrCat("remove it; known here: ", absl::StrJoin(names, ", "));
      }
    }
    violations_->push_back({.path = path, .message = "is not a field", .remedy = remedy, .line = item.line});
  }

  void ReadField(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    if (field->is_map()) {
      ReadMap(tree, path, field, message);
    } else if (field->is_repeated()) {
      if (tree.kind != Tree::Kind::kList) return Fail(tree, path, "must be a list", "");
      for (size_t i = 0; i < tree.items.size(); ++i) {
        ReadValue(tree.items[i], absl::StrCat(path, "[", i, "]"), field, message);
      }
    } else {
      ReadValue(tree, path, field, message);
    }
  }

  void ReadMap(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    if (tree.kind != Tree::Kind::kMap) return Fail(tree, path, "must be a mapping of names to values", "");
    const FieldDescriptor* key = field->message_type()->map_key();
    const FieldDescriptor* value = field->message_type()->map_value();
    for (const Tree& item : tree.items) {
      Message* entry = message->GetReflection()->AddMessage(message, field);
      Tree name;
      name.kind = Tree::Kind::kQuoted;
      name.text = item.key;
      name.line = item.line;
      ReadValue(name, path, key, entry);
      if (item.kind != Tree::Kind::kNull) ReadValue(item, Join(path, item.key), value, entry);
    }
  }

  void ReadValue(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ReadNested(tree, path, field, message);
      case FieldDescriptor::CPPTYPE_ENUM:
        return ReadEnum(tree, path, field, message);
      case FieldDescriptor::CPPTYPE_STRING:
        return ReadString(tree, path, field, message);
      case FieldDescriptor::CPPTYPE_BOOL:
        return ReadBool(tree, path, field, message);
      case FieldDescriptor::CPPTYPE_FLOAT:
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return ReadReal(tree, path, field, message);
      default:
        return ReadInteger(tree, path, field, message);
    }
  }

  void ReadNested(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    const auto* reflection = message->GetReflection();
    Message* nested = field->is_repeated() ? reflection->AddMessage(message, field)
                                           : reflection->MutableMessage(message, field);
    const std::string& type = nested->GetDescriptor()->full_name();
    if (type == "google.protobuf.Duration") {
      const auto duration = tree.IsScalar() ? ParseDuration(tree.text) : std::nullopt;
      if (!duration.has_value())
        return Fail(tree, path, "must be a duration", "write it like 30s, 5m or 1h30m");
      nested->CopyFrom(*duration);
    } else if (type == "google.protobuf.Timestamp") {
      const auto timestamp = tree.IsScalar() ? ParseTimestamp(tree.text) : std::nullopt;
      if (!timestamp.has_value())
        return Fail(tree, path, "must be a time", "write it like 2024-05-01T12:00:00Z");
      nested->CopyFrom(*timestamp);
    } else if (type == "google.protobuf.FieldMask") {
      google::protobuf::FieldMask mask;
      if (!tree.IsScalar())
        return Fail(tree, path, "must be paths of fields", "write it like name,status.state");
      for (const absl::string_view part : absl::StrSplit(tree.text, ',', absl::SkipWhitespace())) {
        mask.add_paths(std::string(absl::StripAsciiWhitespace(part)));
      }
      nested->CopyFrom(mask);
    } else {
      Read(tree, path, nested);
    }
  }

  void ReadEnum(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    const EnumDescriptor* type = field->enum_type();
    const bool word = tree.kind == Tree::Kind::kPlain || tree.kind == Tree::Kind::kQuoted;
    // YAML 1.1 readers turn a plain `off` into false before it arrives here as JSON.
    const EnumValueDescriptor* value = word ? FindEnumValue(type, tree.text)
                                       : tree.kind == Tree::Kind::kBool && tree.text == "false"
                                           ? FindEnumValue(type, "off")
                                           : nullptr;
    if (value != nullptr) {
      const auto* reflection = message->GetReflection();
      return field->is_repeated() ? reflection->AddEnum(message, field, value)
                                  : reflection->SetEnum(message, field, value);
    }
    std::vector<std::string> names;
    for (int i = 0; i < type->value_count(); ++i) {
      if (type->value(i)->number() != 0) names.push_back(ShortEnumName(type->value(i)));
    }
    const std::string near = word ? Nearest(tree.text, names) : "";
    Fail(tree, path, absl::StrCat("must be one of ", absl::StrJoin(names, ", ")),
         near.empty() ? "" : absl::StrCat("did you mean ", near, "?"));
  }

  void ReadString(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    if (tree.kind != Tree::Kind::kPlain && tree.kind != Tree::Kind::kQuoted) {
      return Fail(tree, path, "must be text", tree.IsScalar() ? "put it in quotes" : "");
    }
    std::string text = tree.text;
    if (field->type() == FieldDescriptor::TYPE_BYTES && !absl::Base64Unescape(tree.text, &text)) {
      return Fail(tree, path, "must be base64", "");
    }
    const auto* reflection = message->GetReflection();
    field->is_repeated() ? reflection->AddString(message, field, std::move(text))
                         : reflection->SetString(message, field, std::move(text));
  }

  void ReadBool(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    const bool typed = tree.kind == Tree::Kind::kPlain || tree.kind == Tree::Kind::kBool;
    const std::string text = absl::AsciiStrToLower(tree.text);
    if (!typed || (text != "true" && text != "false")) return Fail(tree, path, "must be true or false", "");
    const auto* reflection = message->GetReflection();
    field->is_repeated() ? reflection->AddBool(message, field, text == "true")
                         : reflection->SetBool(message, field, text == "true");
  }

  void ReadReal(const Tree& tree, const std::string& path, const FieldDescriptor* field, Message* message) {
    double value = 0;
    if (!tree.IsScalar() || tree.kind == Tree::Kind::kBool) return Fail(tree, path, "must be a number", "");
    const std::string lower = absl::AsciiStrToLower(tree.text);
    if (absl::StrContains(lower, "nan") || absl::StrContains(lower, "inf")) {
      return Fail(tree, path, "must be a finite number", "");
    }
    if (!absl::SimpleAtod(tree.text, &value) || absl::StrContains(lower, "x")) {
      return Fail(tree, path, "must be a number", "");
    }
    const bool narrow = field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
    if (!std::isfinite(narrow ? static_cast<float>(value) : value)) {
      return Fail(tree, path, "is too large for a number", "");
    }
    const auto* reflection = message->GetReflection();
    if (narrow) {
      const float single = static_cast<float>(value);
      field->is_repeated() ? reflection->AddFloat(message, field, single)
                           : reflection->SetFloat(message, field, single);
    } else {
      field->is_repeated() ? reflection->AddDouble(message, field, value)
                           : reflection->SetDouble(message, field, value);
    }
  }

  template <typename Int>
  bool ParseInto(const Tree& tree, const std::string& path, Int* value) {
    constexpr Int kLow = std::numeric_limits<Int>::min();
    constexpr Int kHigh = std::numeric_limits<Int>::max();
    if (absl::SimpleAtoi(tree.text, value)) return true;
    double real = 0;
    const bool hex = absl::StartsWith(tree.text, "0x");
    if (hex && absl::SimpleHexAtoi(tree.text, value)) return true;
    if (!hex && absl::SimpleAtod(tree.text, &real) && !std::isnan(real)) {
      constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a real number is no exact count
      const bool inside = real >= static_cast<double>(kLow) && real <= static_cast<double>(kHigh);
      if (inside && real == std::floor(real) && std::abs(real) <= kExact) {
        *value = static_cast<Int>(real);
        return true;
      }
      Fail(tree, path, inside ? "must be a whole number" : absl::StrCat("must be from ", kLow, " to ", kHigh),
           "");
      return false;
    }
    Fail(tree, path, "must be a whole number", "");
    return false;
  }

  void ReadInteger(const Tree& tree, const std::string& path, const FieldDescriptor* field,
                   Message* message) {
    if (!tree.IsScalar() || tree.kind == Tree::Kind::kBool)
      return Fail(tree, path, "must be a whole number", "");
    const auto* reflection = message->GetReflection();
    const bool repeated = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        int32_t value = 0;
        if (!ParseInto(tree, path, &value)) return;
        return repeated ? reflection->AddInt32(message, field, value)
                        : reflection->SetInt32(message, field, value);
      }
      case FieldDescriptor::CPPTYPE_UINT32: {
        uint32_t value = 0;
        if (!ParseInto(tree, path, &value)) return;
        return repeated ? reflection->AddUInt32(message, field, value)
                        : reflection->SetUInt32(message, field, value);
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        uint64_t value = 0;
        if (!ParseInto(tree, path, &value)) return;
        return repeated ? reflection->AddUInt64(message, field, value)
                        : reflection->SetUInt64(message, field, value);
      }
      default:
        break;
    }
    int64_t value = 0;
    double ignored = 0;
    const bool number = absl::SimpleAtod(tree.text, &ignored);
    if (absl::EndsWith(field->name(), "_bytes") && !number) {
      const auto bytes = ParseBytes(tree.text);
      if (!bytes.has_value()) {
        return Fail(tree, path, "must be a number of bytes", "write it like 512MiB, 2Gi or 1.5GB");
      }
      value = *bytes;
    } else if (!ParseInto(tree, path, &value)) {
      return;
    }
    repeated ? reflection->AddInt64(message, field, value) : reflection->SetInt64(message, field, value);
  }

  const Descriptor* root_;
  std::string prefix_;
  std::vector<Violation>* violations_;
};

}  // namespace

void ReadMessage(const Tree& tree, const std::string& path, Message* message,
                 std::vector<Violation>* violations) {
  Reader(*message, path.empty() ? path : path + ".", violations).Read(tree, path, message);
}

}  // namespace tessera::spec
