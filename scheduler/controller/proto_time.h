// Between absl and protobuf times and durations.
#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace tessera::scheduler {

inline void SetTime(absl::Time time, google::protobuf::Timestamp* out) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  out->set_seconds(seconds);
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

inline absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

inline void SetDuration(absl::Duration duration, google::protobuf::Duration* out) {
  out->set_seconds(absl::ToInt64Seconds(duration));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration - absl::Seconds(out->seconds()))));
}

inline absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

}  // namespace tessera::scheduler
