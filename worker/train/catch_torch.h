// LibTorch throws; where its exceptions end.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"

namespace tessera::worker {

// ResourceExhausted: memory, of the host or a device. Internal: anything else.
inline absl::Status StatusOfException(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return absl::ResourceExhaustedError("out of memory");
  std::string what = error.what();
  what = what.substr(0, what.find('\n'));
  if (absl::StrContains(what, "allocate memory") || absl::StrContains(what, "out of memory")) {
    return absl::ResourceExhaustedError(what);
  }
  return absl::InternalError(what);
}

template <typename Function>
auto CatchTorch(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    return StatusOfException(error);
  }
}

}  // namespace tessera::worker
