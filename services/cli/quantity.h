// Numbers as people read them. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace tessera::cli {

// Binary units, three figures: "0 B", "812 B", "1.50 KiB", "12.3 MiB", "181 MiB".
std::string FormatBytes(int64_t bytes);
// Decimal prefixes: "950", "12.3k", "1.20M".
std::string FormatCount(double count);
// "0:42", "12:05", "3:07:00", "2d 03:00"; "-" if negative or infinite.
std::string FormatClock(absl::Duration duration);
// "45 %" and "+2.1 %".
std::string FormatPercent(double ratio);
std::string FormatSignedPercent(double ratio);
// measured / predicted - 1 as "+2.1 %", "-" when either is unknown (0).
std::string FormatDeviation(int64_t measured, int64_t predicted);
// Four decimals; "-" for zero, which means "not measured".
std::string FormatLoss(double loss);

absl::Duration ToDuration(const google::protobuf::Duration& duration);
absl::Time ToTime(const google::protobuf::Timestamp& time);

}  // namespace tessera::cli
