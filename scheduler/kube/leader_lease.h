// One of several programs leads: who holds a Lease of the API server.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "scheduler/kube/api_client.h"

namespace tessera::scheduler {

struct LeaseOptions {
  std::string ns;
  std::string name;
  std::string holder;                           // who this is; unlike every other candidate's
  absl::Duration duration = absl::Seconds(15);  // others may take a lease that was not renewed for so long
  absl::Duration deadline = absl::Seconds(10);  // a holder that could not renew for so long has lost it
  absl::Duration interval = absl::Seconds(2);   // between renewals, and between a candidate's looks
};

// Never two at once as long as clocks run at like speeds: times of different machines are not compared. A
// candidate waits until the Lease has not changed for the duration that stands in it; a holder gives up
// `duration - deadline` earlier.
class LeaderLease {
 public:
  // `client` outlives it and should be nobody else's: renewals must not queue behind other requests.
  // `lost` is called once, on a thread of its own, and should end the process.
  LeaderLease(ApiClient* client, LeaseOptions options, std::function<void()> lost);
  // Gives the lease back, if it is held: another may take it at once.
  ~LeaderLease();

  // Blocks until the lease is held: true; or until `stop`, which is asked every interval: false. Renews it
  // from then on. Failures of the API server are logged and waited out.
  bool Acquire(const std::function<bool()>& stop);

  // Who held it when a candidate looked last; "" = nobody.
  std::string HeldBy() const;

 private:
  using Json = nlohmann::json;

  absl::StatusOr<bool> TryAcquire();
  absl::Status Take(const Json& lease);
  absl::Status Renew();
  void RenewUntilTheEnd();
  void WatchTheDeadline();
  std::string Path() const;
  Json Spec(absl::Time acquired, int transitions) const;

  ApiClient* const client_;
  const LeaseOptions options_;
  const std::function<void()> lost_;

  std::string seen_version_;  // of the candidate: what it saw, and since when
  absl::Time seen_at_ = absl::InfinitePast();

  mutable absl::Mutex mutex_;
  std::string held_by_ ABSL_GUARDED_BY(mutex_);
  std::string version_ ABSL_GUARDED_BY(mutex_);  // of the Lease as this holder wrote it last
  absl::Time renewed_ ABSL_GUARDED_BY(mutex_);   // before the request of the last renewal was sent
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread renewer_, watchdog_;
};

}  // namespace tessera::scheduler
