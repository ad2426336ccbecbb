// Bounded slices of a worker's log file.
#pragma once

#include "absl/status/statusor.h"
#include "tessera/v1/api.pb.h"

namespace tessera::services {

inline constexpr int64_t kMaxLogSlice = 1 << 20;

// At most kMaxLogSlice bytes from request.offset of the log of (epoch, rank); empty while
// the worker has written nothing. `text` is UTF-8: a character is never cut, and bytes
// that are none become U+FFFD. Offsets are those of the file.
// OutOfRange for an offset beyond the end; NotFound for a rank or epoch that never was.
absl::StatusOr<v1::GetLogsResponse> ReadLogs(const v1::TrainingJob& job, const v1::GetLogsRequest& request);

bool IsTerminal(v1::JobState state);

}  // namespace tessera::services
