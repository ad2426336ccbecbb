// One watch stream, read by a thread of its own.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "services/cli/client.h"
#include "services/cli/interrupts.h"

namespace tessera::cli {

class JobWatch {
 public:
  struct News {
    std::vector<v1::TrainingJob> jobs;  // oldest first
    bool deleted = false;
    std::optional<absl::Status> ended;  // of the stream; nothing comes after it
  };

  // Starts at once. `wake` is notified whenever there is news. Both outlive this.
  JobWatch(Client* client, const std::string& ns, const std::string& name, Interrupts* wake);
  ~JobWatch();  // ends the stream
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // What came since the last call.
  News Take();

 private:
  void Read(const std::string& ns, const std::string& name);

  Client* const client_;
  Interrupts* const wake_;
  grpc::ClientContext context_;
  absl::Mutex mutex_;
  News news_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tessera::cli
