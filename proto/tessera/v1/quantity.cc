#include "proto/tessera/v1/quantity.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace tessera::spec {
namespace {

constexpr int64_t kMaxDurationSeconds = 315576000000;
constexpr int64_t kFirstSecond = -62135596800;  // 0001-01-01
constexpr int64_t kLastSecond = 253402300799;   // 9999-12-31T23:59:59

std::string Fraction(int32_t nanos) {
  if (nanos == 0) return "";
  std::string digits = absl::StrFormat(".%09d", std::abs(nanos));
  digits.erase(digits.find_last_not_of('0') + 1);
  return digits;
}

// 1024^n for "Ki", "MiB", ...; 1000^n for "k", "MB", ...; nothing for other text.
std::optional<double> UnitOf(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 1.0;
  static constexpr std::string_view kPrefixes = "kmgtpe";
  const size_t power = kPrefixes.find(absl::ascii_tolower(unit[0]));
  if (power == kPrefixes.npos) return std::nullopt;
  unit.remove_prefix(1);
  const bool binary = !unit.empty() && unit[0] == 'i';
  if (binary) unit.remove_prefix(1);
  if (!unit.empty() && unit != "B" && unit != "b") return std::nullopt;
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

}  // namespace

std::optional<int64_t> ParseBytes(std::string_view text) {
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  std::string_view unit = digits == text.npos ? "" : text.substr(digits);
  while (!unit.empty() && unit[0] == ' ') unit.remove_prefix(1);
  const std::optional<double> factor = UnitOf(unit);
  if (number.empty() || !factor.has_value()) return std::nullopt;
  int64_t whole = 0;
  if (*factor == 1.0 && absl::SimpleAtoi(absl::string_view(number.data(), number.size()), &whole))
    return whole;
  double value = 0;
  if (!absl::SimpleAtod(absl::string_view(number.data(), number.size()), &value)) return std::nullopt;
  value *= *factor;
  if (!(value < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0 || value == std::floor(value)) return absl::StrFormat("%.0f %s", value, kUnits[unit]);
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::optional<google::protobuf::Duration> ParseDuration(std::string_view text) {
  absl::Duration parsed;
  if (!absl::ParseDuration(absl::string_view(text.data(), text.size()), &parsed)) return std::nullopt;
  if (parsed > absl::Seconds(kMaxDurationSeconds) || parsed < -absl::Seconds(kMaxDurationSeconds))
    return std::nullopt;
  google::protobuf::Duration duration;
  duration.set_seconds(absl::IDivDuration(parsed, absl::Seconds(1), &parsed));
  duration.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(parsed)));
  return duration;
}

std::string FormatDuration(const google::protobuf::Duration& duration) {
  const bool negative = duration.seconds() < 0 || duration.nanos() < 0;
  const uint64_t seconds = negative ? 0 - static_cast<uint64_t>(duration.seconds()) : duration.seconds();
  return absl::StrCat(negative ? "-" : "", seconds, Fraction(duration.nanos()), "s");
}

std::optional<google::protobuf::Timestamp> ParseTimestamp(std::string_view text) {
  if (text.empty() || !absl::ascii_isdigit(text[0])) return std::nullopt;  // "infinite-future"
  absl::Time parsed;
  if (!absl::ParseTime(absl::RFC3339_full, absl::string_view(text.data(), text.size()), &parsed, nullptr)) {
    return std::nullopt;
  }
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(absl::ToUnixSeconds(parsed));
  timestamp.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(parsed - absl::FromUnixSeconds(timestamp.seconds()))));
  if (timestamp.seconds() < kFirstSecond || timestamp.seconds() > kLastSecond) return std::nullopt;
  return timestamp;
}

std::string FormatTimestamp(const google::protobuf::Timestamp& timestamp) {
  const absl::Time time = absl::FromUnixSeconds(timestamp.seconds());
  return absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%S", time, absl::UTCTimeZone()),
                      Fraction(timestamp.nanos()), "Z");
}

}  // namespace tessera::spec
