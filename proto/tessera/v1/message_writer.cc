#include <google/protobuf/field_mask.pb.h>

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/message_reader.h"
#include "proto/tessera/v1/quantity.h"
#include "proto/tessera/v1/yaml_text.h"

namespace tessera::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

Json Real(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// The value of a field, or of its i-th element when it is repeated (i >= 0).
Json Value(const Message& message, const FieldDescriptor* field, int i) {
  const auto* r = message.GetReflection();
  const bool one = i < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r->GetInt32(message, field) : r->GetRepeatedInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r->GetUInt32(message, field) : r->GetRepeatedUInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value = one ? r->GetUInt64(message, field) : r->GetRepeatedUInt64(message, field, i);
      if (field->type() == FieldDescriptor::TYPE_FIXED64) return absl::StrFormat("0x%016x", value);
      return value;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Real(one ? r->GetDouble(message, field) : r->GetRepeatedDouble(message, field, i));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Real(one ? r->GetFloat(message, field) : r->GetRepeatedFloat(message, field, i));
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(field->enum_type(),
                      one ? r->GetEnumValue(message, field) : r->GetRepeatedEnumValue(message, field, i));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = one ? r->GetString(message, field) : r->GetRepeatedString(message, field, i);
      return field->type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJsonValue(one ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, i));
  }
  return nullptr;
}

// Keys sorted, so that equal messages give equal text.
Json Map(const Message& message, const FieldDescriptor* field) {
  std::map<std::string, Json> sorted;
  const auto* r = message.GetReflection();
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    const Json key = Value(entry, field->message_type()->map_key(), -1);
    sorted[key.is_string() ? key.get<std::string>() : key.dump()] =
        Value(entry, field->message_type()->map_value(), -1);
  }
  Json map = Json::object();
  for (auto& [key, value] : sorted) map[key] = std::move(value);
  return map;
}

template <typename WellKnown>
WellKnown As(const Message& message) {
  WellKnown value;
  value.ParseFromString(message.SerializeAsString());  // also of a dynamic message
  return value;
}

bool IsPlainYaml(const std::string& text) {
  if (text.empty() || (!absl::ascii_isalpha(text[0]) && text[0] != '/' && text[0] != '_')) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && std::string_view("_-./+").find(c) == std::string_view::npos) return false;
  }
  static constexpr std::string_view kWords[] = {"true", "false", "yes", "no", "on", "off",
                                                "null", "nan",   "inf", "y",  "n",  "infinity"};
  const std::string lower = absl::AsciiStrToLower(text);
  for (const std::string_view word : kWords) {
    if (lower == word) return false;
  }
  return true;
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

void WriteYaml(const Json& value, int indent, bool in_list, std::string* out) {
  const std::string pad(indent, ' ');
  if (value.is_object() && !value.empty()) {
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      absl::StrAppend(out, first && in_list ? "" : pad, IsPlainYaml(key) ? key : Quoted(key), ":");
      first = false;
      const bool nested = (item.is_object() || item.is_array()) && !item.empty();
      absl::StrAppend(out, nested ? "\n" : " ");
      WriteYaml(item, indent + 2, false, out);
    }
  } else if (value.is_array() && !value.empty()) {
    for (const auto& item : value) {
      absl::StrAppend(out, pad, "- ");
      WriteYaml(item, indent + 2, true, out);
    }
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    absl::StrAppend(out, IsPlainYaml(text) ? text : Quoted(text), "\n");
  } else {
    absl::StrAppend(out, value.dump(), "\n");
  }
}

std::string Dump(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

Json ToJsonValue(const Message& message) {
  const std::string& type = message.GetDescriptor()->full_name();
  if (type == "google.protobuf.Duration") return FormatDuration(As<google::protobuf::Duration>(message));
  if (type == "google.protobuf.Timestamp") return FormatTimestamp(As<google::protobuf::Timestamp>(message));
  if (type == "google.protobuf.FieldMask")
    return absl::StrJoin(As<google::protobuf::FieldMask>(message).paths(), ",");
  std::vector<const FieldDescriptor*> fields;
  const auto* reflection = message.GetReflection();
  reflection->ListFields(message, &fields);
  Json object = Json::object();
  for (const FieldDescriptor* field : fields) {
    Json& value = object[field->json_name()];
    if (field->is_map()) {
      value = Map(message, field);
    } else if (field->is_repeated()) {
      value = Json::array();
      for (int i = 0; i < reflection->FieldSize(message, field); ++i)
        value.push_back(Value(message, field, i));
    } else {
      value = Value(message, field, -1);
    }
  }
  return object;
}

std::string ToJson(const Message& message) { return Dump(ToJsonValue(message), -1); }
std::string ToPrettyJson(const Message& message) { return Dump(ToJsonValue(message), 2) + "\n"; }

std::string YamlText(const Json& value) {
  std::string text;
  WriteYaml(value, 0, false, &text);
  return text;
}

std::string ToYaml(const Message& message) { return YamlText(ToJsonValue(message)); }

std::string EnumName(const google::protobuf::EnumDescriptor* type, int number) {
  const auto* value = type->FindValueByNumber(number);
  return value == nullptr ? absl::StrCat(number) : ShortEnumName(value);
}

}  // namespace tessera::spec
