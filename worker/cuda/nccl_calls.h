// The NCCL calls of a process, and the watch over what they started.
//
// Communicators are non-blocking, so that a call that waits for a peer can be given up. A watching thread
// asks them for errors and looks at the oldest collective under way; at the first failure it aborts all
// communicators together (one aborted alone can wait for another for ever), which ends their kernels, so that
// whoever waits for a stream goes on and finds the failure in status().
//
// Thread-safe. CUDA calls are made with `device` current.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::cuda {

// Internal: CUDA's words, of what it was about.
absl::Status StatusOfCuda(cudaError_t error, const char* operation);

// A point of a stream that others wait for.
class Event {
 public:
  Event() = default;  // passed
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  absl::Status Record(cudaStream_t stream);
  absl::Status Block(cudaStream_t stream) const;  // what is queued on it later waits; the host does not
  bool Passed() const;

 private:
  cudaEvent_t event_ = nullptr;
};

class NcclCalls {
 public:
  NcclCalls(int device, absl::Duration collective_timeout);
  ~NcclCalls();  // aborts all communicators

  // Calls `start`, waits until `settles` is out of ncclInProgress (null: *made) and takes *made into its
  // care.
  absl::Status MakeCommunicator(const std::string& operation, ncclComm_t settles, ncclComm_t* made,
                                absl::Duration timeout, const std::function<ncclResult_t()>& start);
  // Queues a collective; returns when it is queued. `done` is recorded behind it on `stream`.
  absl::Status Start(const std::string& operation, ncclComm_t communicator, cudaStream_t stream,
                     const std::shared_ptr<Event>& done, const std::function<ncclResult_t()>& start);
  // OK, or the first failure.
  absl::Status status() const;
  // Operation of the oldest collective that is under way for more than a second; empty: none. Lives as long
  // as the operation's name.
  std::string Waiting() const;

 private:
  struct Flight {
    const std::string* operation;
    absl::Time since;
    std::shared_ptr<Event> done;
  };

  absl::Status Settle(const std::string& operation, ncclComm_t communicator, absl::Time deadline,
                      absl::Duration pause);
  void Watch();
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int device_;
  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;  // held during every call of NCCL
  std::vector<ncclComm_t> communicators_ ABSL_GUARDED_BY(mutex_);
  std::deque<Flight> flights_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watcher_;
};

}  // namespace tessera::cuda
