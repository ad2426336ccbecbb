#include <google/protobuf/field_mask.pb.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/tessera/v1/field_names.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/quantity.h"
#include "proto/tessera/v1/yaml_text.h"

namespace tessera::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

void WriteMessage(const Message& message, std::string* out);

void WriteText(const std::string& text, std::string* out) {
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return absl::ascii_isprint(c) && c != '"' && c != '\\'; });
  if (plain) {
    absl::StrAppend(out, "\"", text, "\"");
  } else {
    absl::StrAppend(out, Quoted(text));
  }
}

void WriteReal(double value, std::string* out) {
  if (std::isnan(value)) {
    absl::StrAppend(out, "\"NaN\"");
  } else if (std::isinf(value)) {
    absl::StrAppend(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  } else {
    absl::StrAppend(out, Json(value).dump());
  }
}

// The value of a field, or of its i-th element when it is repeated (i >= 0).
void WriteValue(const Message& message, const FieldDescriptor* field, int i, std::string* out) {
  const auto* r = message.GetReflection();
  const bool one = i < 0;
  std::string scratch;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrAppend(out, one ? r->GetInt32(message, field) : r->GetRepeatedInt32(message, field, i));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrAppend(out, one ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, i));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrAppend(out,
                             one ? r->GetUInt32(message, field) : r->GetRepeatedUInt32(message, field, i));
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value = one ? r->GetUInt64(message, field) : r->GetRepeatedUInt64(message, field, i);
      if (field->type() != FieldDescriptor::TYPE_FIXED64) return absl::StrAppend(out, value);
      return WriteText(absl::StrFormat("0x%016x", value), out);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return WriteReal(one ? r->GetDouble(message, field) : r->GetRepeatedDouble(message, field, i), out);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return WriteReal(one ? r->GetFloat(message, field) : r->GetRepeatedFloat(message, field, i), out);
    case FieldDescriptor::CPPTYPE_BOOL:
      return absl::StrAppend(
          out, (one ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, i)) ? "true" : "false");
    case FieldDescriptor::CPPTYPE_ENUM:
      return WriteText(EnumName(field->enum_type(), one ? r->GetEnumValue(message, field)
                                                        : r->GetRepeatedEnumValue(message, field, i)),
                       out);
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string& text = one ? r->GetStringReference(message, field, &scratch)
                                    : r->GetRepeatedStringReference(message, field, i, &scratch);
      return WriteText(field->type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text, out);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return WriteMessage(one ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, i),
                          out);
  }
}

// Keys sorted, so that equal messages give equal text.
void WriteMap(const Message& message, const FieldDescriptor* field, std::string* out) {
  std::map<std::string, std::string> sorted;
  const auto* r = message.GetReflection();
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    std::string key;
    WriteValue(entry, field->message_type()->map_key(), -1, &key);
    if (key.front() != '"') key = absl::StrCat("\"", key, "\"");
    WriteValue(entry, field->message_type()->map_value(), -1, &sorted[key]);
  }
  const char* separator = "{";
  for (const auto& [key, value] : sorted) {
    absl::StrAppend(out, separator, key, ":", value);
    separator = ",";
  }
  absl::StrAppend(out, sorted.empty() ? "{}" : "}");
}

template <typename WellKnown>
WellKnown As(const Message& message) {
  if (const auto* generated = dynamic_cast<const WellKnown*>(&message)) return *generated;
  WellKnown value;
  value.ParseFromString(message.SerializeAsString());
  return value;
}

void WriteMessage(const Message& message, std::string* out) {
  switch (message.GetDescriptor()->well_known_type()) {
    case google::protobuf::Descriptor::WELLKNOWNTYPE_DURATION:
      return WriteText(FormatDuration(As<google::protobuf::Duration>(message)), out);
    case google::protobuf::Descriptor::WELLKNOWNTYPE_TIMESTAMP:
      return WriteText(FormatTimestamp(As<google::protobuf::Timestamp>(message)), out);
    case google::protobuf::Descriptor::WELLKNOWNTYPE_FIELDMASK:
      return WriteText(absl::StrJoin(As<google::protobuf::FieldMask>(message).paths(), ","), out);
    default:
      break;
  }
  std::vector<const FieldDescriptor*> fields;
  const auto* reflection = message.GetReflection();
  reflection->ListFields(message, &fields);
  const char* separator = "{";
  for (const FieldDescriptor* field : fields) {
    absl::StrAppend(out, separator, "\"", field->json_name(), "\":");
    separator = ",";
    if (field->is_map()) {
      WriteMap(message, field, out);
    } else if (field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        absl::StrAppend(out, i == 0 ? "[" : ",");
        WriteValue(message, field, i, out);
      }
      absl::StrAppend(out, "]");
    } else {
      WriteValue(message, field, -1, out);
    }
  }
  absl::StrAppend(out, fields.empty() ? "{}" : "}");
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

std::string ToJson(const Message& message) {
  std::string text;
  WriteMessage(message, &text);
  return text;
}

Json ToJsonValue(const Message& message) { return Json::parse(ToJson(message)); }
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
