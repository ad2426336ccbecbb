// A 64-bit fingerprint of a sequence of values: FNV-1a over their little-endian
// bytes, finished by splitmix64. Equal on every platform. Not cryptographic.
#pragma once

#include <concepts>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "scheduler/plan/counter_random.h"

namespace tessera::plan {

class FingerprintBuilder {
 public:
  FingerprintBuilder& Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) AddByte(static_cast<uint8_t>(value >> (8 * i)));
    return *this;
  }
  FingerprintBuilder& Add(int64_t value) { return Add(static_cast<uint64_t>(value)); }
  FingerprintBuilder& Add(int value) { return Add(static_cast<int64_t>(value)); }
  // Exactly bool: a string literal would rather become one than a string_view.
  template <std::same_as<bool> T>
  FingerprintBuilder& Add(T value) {
    return Add(static_cast<int64_t>(value));
  }
  // The length goes first: "ab", "c" differs from "a", "bc".
  FingerprintBuilder& Add(absl::string_view text) {
    Add(static_cast<uint64_t>(text.size()));
    for (char c : text) AddByte(static_cast<uint8_t>(c));
    return *this;
  }

  uint64_t Finish() const { return SplitMix64(hash_); }

 private:
  void AddByte(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }

  uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace tessera::plan
