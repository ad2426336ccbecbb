// One worker's Connect stream. The first message must be a Hello, and the token that of
// its (job, epoch); after it the worker speaks for that rank alone.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "boost/asio/thread_pool.hpp"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"
#include "scheduler/controller/controller.h"
#include "services/grpc/open_streams.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::services {

// Whether who shows a token is the worker that he says he is; rank -1: any of that job and epoch. May block.
using WorkerReview = std::function<absl::Status(const std::string& token, const v1::WorkerIdentity& worker)>;

// Unauthenticated unless `authorization` bears the workers' token of (job, epoch), or one that `review`,
// which may be empty, takes.
absl::Status CheckWorker(scheduler::Controller* controller, const WorkerReview& review,
                         const std::string& authorization, const v1::WorkerIdentity& worker);

class WorkerReactor;

// What all workers' streams have in common; outlives them.
struct WorkerDoor {
  scheduler::Controller* controller;
  OpenStreams* streams;
  WorkerReview review;                // may be empty
  boost::asio::thread_pool* openers;  // where it is asked
};

// Streams of all workers that have not said hello: strangers until then. Where there are too many the one
// that has been silent longest makes room: thousands may arrive at once, and who only holds a place keeps
// nobody out. Thread-safe.
class Greetings {
 public:
  Greetings(absl::Duration deadline, size_t most) : deadline_(deadline), most_(most) {}
  absl::Duration deadline() const { return deadline_; }
  // Counts a stream, until Remove. The one that is to end for it; null: none.
  std::shared_ptr<WorkerReactor> Add(int stream, std::weak_ptr<WorkerReactor> reactor);
  void Remove(int stream);

 private:
  const absl::Duration deadline_;
  const size_t most_;
  absl::Mutex mutex_;
  std::map<int, std::weak_ptr<WorkerReactor>> silent_
      ABSL_GUARDED_BY(mutex_);  // by stream, so the oldest first
};

// In wire format both ways: what a thousand workers are told at once is kept once.
class WorkerReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      public std::enable_shared_from_this<WorkerReactor> {
 public:
  // Lives until gRPC is done with it. Never null. `door` and `greetings` outlive it.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(const WorkerDoor* door,
                                                                            Greetings* greetings,
                                                                            std::string authorization);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  class Sink;
  // Workers that fall this far behind in reading are cut off.
  static constexpr size_t kMaxQueued = 256;

  WorkerReactor(const WorkerDoor* door, Greetings* greetings, std::string authorization)
      : door_(door), greetings_(greetings), authorization_(std::move(authorization)) {}
  void AwaitGreeting();
  void StopAwaitingGreeting();
  absl::Status Greet();
  void GreetAside();    // Take by a thread that may wait
  absl::Status Take();  // what was read
  void Send(const scheduler::DownMessage& message);
  void End(const absl::Status& status);
  // End of one that may not be connected yet, and never is after this.
  void Leave(const absl::Status& status) ABSL_LOCKS_EXCLUDED(admission_);

  const WorkerDoor* const door_;
  Greetings* const greetings_;
  const std::string authorization_;
  int id_ = 0;
  grpc::Alarm greeting_;
  std::atomic<bool> awaited_ = false;    // counted in greetings_
  std::shared_ptr<WorkerReactor> self_;  // until OnDone
  grpc::ByteBuffer received_;
  v1::WorkerUp incoming_;                        // what was received, read
  v1::WorkerIdentity identity_;                  // set by Greet
  std::shared_ptr<scheduler::WorkerSink> sink_;  // set by Greet; null before
  bool finished_ = false;                        // from then on only the controller ends the stream
  absl::Mutex admission_;  // held while it is connected; never taken by what the controller calls
  bool left_ ABSL_GUARDED_BY(admission_) = false;
  absl::Mutex mutex_;
  std::deque<grpc::ByteBuffer> outgoing_ ABSL_GUARDED_BY(mutex_);  // front is being written
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool finish_after_writes_ ABSL_GUARDED_BY(mutex_) = false;
  bool greeting_aside_ ABSL_GUARDED_BY(mutex_) = false;  // the stream stays until that is over
  absl::Status final_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::services
