#include "worker/control/control_client.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tessera/v1/worker.grpc.pb.h"
#include "worker/control/endpoint.h"
#include "worker/control/scheduler_channel.h"

namespace tessera::worker {
namespace {

using Stream = grpc::ClientReaderWriterInterface<v1::WorkerUp, v1::WorkerDown>;

// Refused for good: reconnecting would be refused again.
bool IsRefusal(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
         status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
         status.error_code() == grpc::StatusCode::ABORTED ||  // the epoch is over
         status.error_code() == grpc::StatusCode::NOT_FOUND;  // the job has ended
}

// One thread connects and reads, another writes what is queued.
class StreamClient final : public ControlClient {
 public:
  StreamClient(const ControlOptions& options, ControlHandlers handlers)
      : options_(options), handlers_(std::move(handlers)), last_contact_(absl::Now()) {
    reader_ = std::thread([this] { ConnectLoop(); });
    writer_ = std::thread([this] { WriteLoop(); });
  }

  ~StreamClient() override {
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    reader_.join();
    writer_.join();
  }

  absl::StatusOr<v1::Assignment> WaitForAssignment(absl::Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return assignment_.has_value() || !refused_.ok();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout);
    if (assignment_.has_value()) return *assignment_;
    if (!refused_.ok()) return refused_;
    return absl::DeadlineExceededError(
        absl::StrCat("no assignment from the scheduler at ", options_.scheduler, ": ", last_error_));
  }

  void Send(const v1::WorkerUp& message) override {
    absl::MutexLock lock(&mutex_);
    if (message.has_phase()) phase_ = message.phase().phase();
    if (message.has_progress()) {
      step_ = std::max<int64_t>(step_, message.progress().step());
      // A validation loss must not be thinned away.
      const bool keep = progress_.has_value() && progress_->progress().has_validation_loss();
      if (keep) queue_.push_back(*std::move(progress_));
      progress_ = message;
      return;
    }
    FlushProgress();  // order matters to whoever reads
    queue_.push_back(message);
  }

  absl::Status Finish(const v1::Finished& finished) override {
    v1::WorkerUp message;
    *message.mutable_finished() = finished;
    absl::MutexLock lock(&mutex_);
    FlushProgress();
    queue_.push_back(message);
    finishing_ = true;
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return finished_ || !refused_.ok(); };
    const auto sent = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return finish_sent_ || done(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&sent), options_.grace)) {
      return absl::DeadlineExceededError(absl::StrCat("the scheduler at ", options_.scheduler,
                                                      " could not be told of the end: ", last_error_));
    }
    // Written; the scheduler's closing of the stream only confirms it.
    mutex_.AwaitWithTimeout(absl::Condition(&done), options_.confirmation);
    return refused_;
  }

 private:
  void FlushProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (progress_.has_value()) queue_.push_back(*std::move(progress_));
    progress_.reset();
  }

  bool Done() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closing_ || finished_ || !refused_.ok(); }

  void ConnectLoop() {
    absl::Duration backoff = options_.first_backoff;
    while (true) {
      const bool spoke = ConnectOnce();
      absl::MutexLock lock(&mutex_);
      if (Done()) return;
      backoff = spoke ? options_.first_backoff : std::min(backoff * 2, options_.longest_backoff);
      const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Done(); };
      if (mutex_.AwaitWithTimeout(absl::Condition(&done), backoff)) return;
      if (!lost_ && absl::Now() - last_contact_ > options_.grace) {
        lost_ = true;
        handlers_.scheduler_lost();
      }
    }
  }

  absl::StatusOr<std::unique_ptr<v1::WorkerService::Stub>> Connect(grpc::ClientContext* context) {
    TESSERA_ASSIGN_OR_RETURN(const std::string address, ResolveScheduler(options_.scheduler));
    TESSERA_ASSIGN_OR_RETURN(const std::string token, ReadToken(options_.token_file));
    if (!token.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    // A subchannel of its own: a shared one would keep another connection's back-off.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    TESSERA_ASSIGN_OR_RETURN(const auto channel, OpenSchedulerChannel(address, options_.ca_file, arguments));
    return v1::WorkerService::NewStub(channel);
  }

  // One connection from Hello to its end. True when the scheduler said anything.
  bool ConnectOnce() {
    grpc::ClientContext context;
    auto stub = Connect(&context);
    if (!stub.ok()) {
      absl::MutexLock lock(&mutex_);
      last_error_ = std::string(stub.status().message());
      return false;
    }
    const std::unique_ptr<Stream> stream = (*stub)->Connect(&context);
    {
      absl::MutexLock lock(&mutex_);
      if (closing_) {
        context.TryCancel();
      } else {
        context_ = &context;
      }
    }
    if (stream->Write(HelloMessage())) {
      absl::MutexLock lock(&mutex_);
      stream_ = stream.get();
    }
    bool spoke = false;
    for (v1::WorkerDown message; stream->Read(&message); spoke = true) Handle(message);
    {
      absl::MutexLock lock(&mutex_);
      stream_ = nullptr;
      const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !writing_; };
      mutex_.Await(absl::Condition(&idle));
      context_ = nullptr;
    }
    Conclude(stream->Finish());
    return spoke;
  }

  void Conclude(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    last_error_ = status.error_message();
    if (finish_sent_ && status.ok()) finished_ = true;
    if (finish_sent_ && !status.ok()) {  // perhaps never read: said again on the next stream
      finish_sent_ = false;
      queue_.push_front(finished_message_);
    }
    if (!IsRefusal(status)) return;
    refused_ = absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    if (assignment_.has_value() && !finishing_) {
      // Another incarnation has taken over: this one must not write over its checkpoints.
      v1::Stop stop;
      stop.set_reason(status.error_message());
      handlers_.stop(stop);
    }
  }

  v1::WorkerUp HelloMessage() {
    absl::MutexLock lock(&mutex_);
    v1::WorkerUp up;
    *up.mutable_hello()->mutable_identity() = options_.identity;
    up.mutable_hello()->set_metrics_address(options_.metrics_address);
    up.mutable_hello()->set_step(step_);
    up.mutable_hello()->set_phase(phase_);
    return up;
  }

  void Handle(const v1::WorkerDown& message) {
    {
      absl::MutexLock lock(&mutex_);
      last_contact_ = absl::Now();
      if (message.has_assignment() && !assignment_.has_value()) assignment_ = message.assignment();
    }
    if (message.has_stop()) handlers_.stop(message.stop());
    if (message.has_checkpoint()) handlers_.checkpoint();
    if (message.has_plan()) handlers_.plan(message.plan());
    if (message.has_statistics()) handlers_.statistics();
  }

  void WriteLoop() {
    absl::MutexLock lock(&mutex_);
    absl::Time next_progress = absl::InfinitePast();
    while (!Done()) {
      const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return Done() || (stream_ != nullptr && (!queue_.empty() || progress_.has_value()));
      };
      mutex_.Await(absl::Condition(&ready));
      if (Done()) return;
      last_contact_ = absl::Now();
      if (queue_.empty()) {
        const auto more = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return Done() || stream_ == nullptr || !queue_.empty();
        };
        if (mutex_.AwaitWithDeadline(absl::Condition(&more), next_progress)) continue;
        FlushProgress();
        next_progress = absl::Now() + options_.progress_interval;
      }
      WriteFront();
    }
  }

  // Keeps the message queued when the stream broke under it.
  void WriteFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Stream* stream = stream_;
    const v1::WorkerUp message = queue_.front();
    const bool last = finishing_ && message.has_finished();
    writing_ = true;
    mutex_.Unlock();
    bool ok = stream->Write(message);
    if (ok && last) ok = stream->WritesDone();
    mutex_.Lock();
    writing_ = false;
    if (!ok) {
      if (stream_ == stream) stream_ = nullptr;
      return;
    }
    queue_.pop_front();
    if (last) {
      finish_sent_ = true;
      finished_message_ = message;
      stream_ = nullptr;  // nothing may follow
    }
  }

  const ControlOptions options_;
  ControlHandlers handlers_;
  std::thread reader_, writer_;

  absl::Mutex mutex_;
  std::deque<v1::WorkerUp> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::WorkerUp> progress_ ABSL_GUARDED_BY(mutex_);  // newest, not yet queued
  std::optional<v1::Assignment> assignment_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // open for writing
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Time last_contact_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::WorkerPhase phase_ ABSL_GUARDED_BY(mutex_) = v1::WORKER_PHASE_UNSPECIFIED;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finish_sent_ ABSL_GUARDED_BY(mutex_) = false;  // the scheduler's half is still open
  v1::WorkerUp finished_message_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<ControlClient> ControlClient::Start(const ControlOptions& options, ControlHandlers handlers) {
  return std::make_unique<StreamClient>(options, std::move(handlers));
}

}  // namespace tessera::worker
