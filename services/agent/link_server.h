// The other end of a link probe: answers pings, swallows and sends bursts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tessera::agent {

inline constexpr int64_t kMostBurstBytes = int64_t{256} << 20;
inline constexpr int kMostProbes = 8;  // at a time; further ones are closed at once

// One thread that accepts and one per probe; all end with the object.
class LinkServer {
 public:
  // Listens on `host`:`port`, 0: any. Whoever reaches it may use its link, so that `host` should be of the
  // cluster's own network.
  static absl::StatusOr<std::unique_ptr<LinkServer>> Start(const std::string& host, int port);
  ~LinkServer();
  int port() const { return port_; }

 private:
  LinkServer(int listener, int port) : listener_(listener), port_(port) {}
  void Accept();
  void Serve(int socket);

  const int listener_;
  const int port_;
  std::atomic<bool> stopping_ = false;
  absl::Mutex mutex_;
  std::vector<int> sockets_ ABSL_GUARDED_BY(mutex_);  // of probes under way
  std::vector<std::thread> probes_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tessera::agent
