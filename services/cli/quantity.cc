#include "services/cli/quantity.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::cli {
namespace {

// Three significant figures, never an exponent.
std::string ThreeFigures(double value) {
  if (value < 9.995) return absl::StrFormat("%.2f", value);
  if (value < 99.95) return absl::StrFormat("%.1f", value);
  return absl::StrFormat("%.0f", value);
}

template <size_t N>
std::string WithPrefix(double value, double base, const std::array<const char*, N>& prefixes) {
  size_t prefix = 0;
  // 999.5 would print as "1000" of the smaller unit.
  while (value >= (base == 1000 ? 999.5 : 1023.5) && prefix + 1 < N) {
    value /= base;
    ++prefix;
  }
  return absl::StrCat(prefix == 0 ? absl::StrFormat("%.0f", value) : ThreeFigures(value), prefixes[prefix]);
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  static constexpr std::array<const char*, 6> kPrefixes = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  const std::string sign = bytes < 0 ? "-" : "";
  return sign + WithPrefix(std::abs(static_cast<double>(bytes)), 1024, kPrefixes);
}

std::string FormatCount(double count) {
  static constexpr std::array<const char*, 5> kPrefixes = {"", "k", "M", "G", "T"};
  const std::string sign = count < 0 ? "-" : "";
  return sign + WithPrefix(std::abs(count), 1000, kPrefixes);
}

std::string FormatClock(absl::Duration duration) {
  if (duration < absl::ZeroDuration() || duration == absl::InfiniteDuration()) return "-";
  const int64_t seconds = absl::ToInt64Seconds(duration + absl::Milliseconds(500));
  const int64_t days = seconds / 86400, hours = seconds / 3600 % 24, minutes = seconds / 60 % 60;
  if (days > 0) return absl::StrFormat("%dd %02d:%02d", days, hours, minutes);
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, minutes, seconds % 60);
  return absl::StrFormat("%d:%02d", minutes, seconds % 60);
}

std::string FormatPercent(double ratio) { return absl::StrFormat("%.0f %%", ratio * 100); }

std::string FormatSignedPercent(double ratio) { return absl::StrFormat("%+.1f %%", ratio * 100); }

std::string FormatDeviation(int64_t measured, int64_t predicted) {
  if (measured <= 0 || predicted <= 0) return "-";
  return FormatSignedPercent(static_cast<double>(measured) / static_cast<double>(predicted) - 1);
}

std::string FormatLoss(double loss) {
  if (loss == 0) return "-";
  return absl::StrFormat("%.4f", loss);
}

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

}  // namespace tessera::cli
