// Text of single values: byte quantities, durations, timestamps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace tessera::spec {

// "512MiB", "2Gi", "1.5GB", "100k", "4096"; powers of 1024 with an i, else of 1000.
// A fraction of a byte is cut off. Nothing for other text, negative or above 2^63 - 1.
std::optional<int64_t> ParseBytes(std::string_view text);

// "512 MiB" style for people, at most one decimal.
std::string FormatBytes(int64_t bytes);

// "30s", "5m", "1h30m", "250ms". Nothing for other text and beyond ±10,000 years.
std::optional<google::protobuf::Duration> ParseDuration(std::string_view text);
// In seconds: "90s", "0.25s".
std::string FormatDuration(const google::protobuf::Duration& duration);

// RFC 3339, years 1 to 9999.
std::optional<google::protobuf::Timestamp> ParseTimestamp(std::string_view text);
std::string FormatTimestamp(const google::protobuf::Timestamp& timestamp);

}  // namespace tessera::spec
