// Measures the link to a peer: round-trip time by small messages, bandwidth by bounded bursts. Plain
// TCP; the peer runs a LinkServer. Nothing but the probe's own bytes is sent or kept.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::agent {

struct LinkProbeOptions {
  int pings = 20;
  // A burst is doubled until it takes this long at the receiver, and sent twice then.
  absl::Duration burst = absl::Milliseconds(300);
  int64_t least_burst_bytes = 256 << 10;
  int64_t most_burst_bytes = 128 << 20;        // faster links are reported as measured with this one
  absl::Duration timeout = absl::Seconds(10);  // of each send and receive
};

// A direction's bandwidth is that of payload, as training sees it: some 4 % below the wire's.
struct LinkSample {
  absl::Duration round_trip_median = absl::ZeroDuration();
  absl::Duration round_trip_least = absl::ZeroDuration();
  absl::Duration kernel_round_trip = absl::ZeroDuration();  // TCP_INFO's smoothed one; zero: not offered
  double send_bytes_per_second = 0;                         // 0: unknown
  double receive_bytes_per_second = 0;                      // 0: unknown
  // 0-1: how far the two bursts of each direction agree; a burst shorter than asked for halves it.
  double confidence = 0;
};

// `address`: host:port. Unavailable: no connection, or it broke; DeadlineExceeded: the peer is silent.
absl::StatusOr<LinkSample> MeasureLink(const std::string& address, const LinkProbeOptions& options = {});

}  // namespace tessera::agent
