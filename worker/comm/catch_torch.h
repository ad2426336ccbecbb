// LibTorch throws; where its exceptions end.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera::worker {

// ResourceExhausted: memory, of the host or a device. Internal: anything else.
inline absl::Status StatusOfException(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return absl::ResourceExhaustedError("out of memory");
  std::string what = error.what();  // of which c10 makes a stack trace from the second line on
  what = what.substr(0, what.find('\n'));
  if (absl::StrContains(what, "allocate memory") || absl::StrContains(what, "out of memory")) {
    return absl::ResourceExhaustedError(what);
  }
  return absl::InternalError(what);
}

// Of a collective. ResourceExhausted: as above, of this rank. Unavailable: anything else, as a peer was lost.
inline absl::Status StatusOfCollective(const std::string& operation, const std::exception& error) {
  const absl::Status status = StatusOfException(error);
  const std::string message = absl::StrCat(operation, " failed: ", status.message());
  return absl::IsResourceExhausted(status) ? absl::ResourceExhaustedError(message)
                                           : absl::UnavailableError(message);
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
