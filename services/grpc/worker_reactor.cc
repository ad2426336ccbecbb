#include "services/grpc/worker_reactor.h"

#include "absl/time/clock.h"
#include "boost/asio/post.hpp"
#include "services/auth/token.h"
#include "services/grpc/status.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::services {

absl::Status CheckWorker(scheduler::Controller* controller, const WorkerReview& review,
                         const std::string& authorization, const v1::WorkerIdentity& worker) {
  const auto token = controller->WorkerToken(worker.job_uid(), worker.epoch());
  if (token.ok() && CheckBearer(authorization, *token).ok()) return absl::OkStatus();
  if (review) return review(std::string(BearerToken(authorization)), worker);
  // One answer for a group that does not exist and for a wrong token: neither is anybody's business.
  return absl::UnauthenticatedError("no such worker group, or the token is not its token");
}

namespace {

// Slices of the bytes themselves: what is shared is freed after the last stream that sends it.
grpc::ByteBuffer BufferOf(const scheduler::DownMessage& message) {
  auto* const shared = new std::shared_ptr<const std::string>(message.shared);
  const grpc::Slice slices[] = {
      grpc::Slice(
          const_cast<char*>((*shared)->data()), (*shared)->size(),
          [](void* kept) { delete static_cast<std::shared_ptr<const std::string>*>(kept); }, shared),
      grpc::Slice(message.own)};
  return grpc::ByteBuffer(slices, message.own.empty() ? 1 : 2);
}

}  // namespace

// The controller's handle. May outlive the stream; then it does nothing.
class WorkerReactor::Sink : public scheduler::WorkerSink {
 public:
  explicit Sink(std::weak_ptr<WorkerReactor> reactor) : reactor_(std::move(reactor)) {}
  void Send(const scheduler::DownMessage& message) override {
    if (auto alive = reactor_.lock()) alive->Send(message);
  }
  void Close(const absl::Status& status) override {
    if (auto alive = reactor_.lock()) alive->End(status);
  }

 private:
  const std::weak_ptr<WorkerReactor> reactor_;
};

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* WorkerReactor::Start(const WorkerDoor* door,
                                                                                  Greetings* greetings,
                                                                                  std::string authorization) {
  std::shared_ptr<WorkerReactor> reactor(new WorkerReactor(door, greetings, std::move(authorization)));
  reactor->self_ = reactor;
  reactor->id_ = door->streams->Add([weak = std::weak_ptr<WorkerReactor>(reactor)] {
    if (auto alive = weak.lock()) alive->Leave(absl::UnavailableError("the service is stopping"));
  });
  if (BearerToken(reactor->authorization_).empty()) {
    reactor->End(absl::UnauthenticatedError("no token"));
  } else {
    reactor->AwaitGreeting();
    reactor->StartRead(&reactor->received_);
  }
  return reactor.get();
}

std::shared_ptr<WorkerReactor> Greetings::Add(int stream, std::weak_ptr<WorkerReactor> reactor) {
  absl::MutexLock lock(&mutex_);
  silent_.emplace(stream, std::move(reactor));
  if (silent_.size() <= most_) return nullptr;
  auto oldest = silent_.extract(silent_.begin());
  return oldest.mapped().lock();
}

void Greetings::Remove(int stream) {
  absl::MutexLock lock(&mutex_);
  silent_.erase(stream);
}

void WorkerReactor::AwaitGreeting() {
  awaited_ = true;
  greeting_.Set(absl::ToChronoTime(absl::Now() + greetings_->deadline()),
                [weak = weak_from_this()](bool due) {
                  auto alive = due ? weak.lock() : nullptr;
                  if (alive != nullptr && alive->awaited_)
                    alive->Leave(absl::DeadlineExceededError("no hello came"));
                });
  if (auto oldest = greetings_->Add(id_, weak_from_this()))
    oldest->Leave(
        absl::ResourceExhaustedError("no hello came, and others wait for the place; try again later"));
}

void WorkerReactor::StopAwaitingGreeting() {
  if (!awaited_.exchange(false)) return;
  greetings_->Remove(id_);
  greeting_.Cancel();
}

absl::Status WorkerReactor::Greet() {
  if (!incoming_.has_hello()) return absl::InvalidArgumentError("the first message must be a hello");
  identity_ = incoming_.hello().identity();
  if (absl::Status status = CheckWorker(door_->controller, door_->review, authorization_, identity_);
      !status.ok()) {
    return status;
  }
  absl::Status status;
  {
    absl::MutexLock lock(&admission_);
    if (left_) return absl::CancelledError("the worker left while its token was reviewed");
    sink_ = std::make_shared<Sink>(weak_from_this());
    status = door_->controller->WorkerConnected(incoming_.hello(), sink_);
    if (!status.ok()) sink_ = nullptr;  // never connected: nothing to disconnect
  }
  if (status.ok()) StopAwaitingGreeting();
  return status;
}

void WorkerReactor::OnReadDone(bool ok) {
  if (!ok) {
    // Closing the stream with OK would confirm a Finished that may not be stored yet.
    if (!finished_) End(absl::OkStatus());
    return;
  }
  if (sink_ == nullptr && door_->review) {
    absl::MutexLock lock(&mutex_);
    if (finish_after_writes_) return;
    greeting_aside_ = true;
    boost::asio::post(*door_->openers, [self = shared_from_this()] { self->GreetAside(); });
    return;
  }
  if (absl::Status status = Take(); !status.ok()) return End(status);
  StartRead(&received_);
}

void WorkerReactor::GreetAside() {
  const bool leaving = [this] {
    absl::MutexLock lock(&mutex_);
    return finish_after_writes_;
  }();
  // Who has gone while it waited for its turn is not reviewed.
  const absl::Status status = leaving ? absl::CancelledError("the worker is gone") : Take();
  if (status.ok()) StartRead(&received_);  // before anybody may finish the stream
  absl::Status end;
  {
    absl::MutexLock lock(&mutex_);
    greeting_aside_ = false;
    if (!status.ok() && !finish_after_writes_) {
      final_status_ = status;
      finish_after_writes_ = true;
    }
    if (!finish_after_writes_ || !outgoing_.empty()) return;
    ended_ = true;
    end = final_status_;
  }
  Finish(ToGrpcStatus(end));
}

absl::Status WorkerReactor::Take() {
  if (!grpc::SerializationTraits<v1::WorkerUp>::Deserialize(&received_, &incoming_).ok()) {
    return absl::InvalidArgumentError("what was sent is no WorkerUp message");
  }
  if (sink_ == nullptr) return Greet();
  if (incoming_.has_hello()) return absl::InvalidArgumentError("a second hello");
  finished_ = finished_ || incoming_.has_finished();
  door_->controller->WorkerMessage(identity_, incoming_);
  return absl::OkStatus();
}

void WorkerReactor::Send(const scheduler::DownMessage& message) {
  const grpc::ByteBuffer* first = nullptr;
  bool overflow = false;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_ || finish_after_writes_) return;
    overflow = outgoing_.size() >= kMaxQueued;
    if (!overflow) outgoing_.push_back(BufferOf(message));
    if (outgoing_.size() == 1) first = &outgoing_.front();  // a deque's elements stay where they are
  }
  if (overflow) return End(absl::ResourceExhaustedError("the worker does not read its messages"));
  if (first != nullptr) StartWrite(first);
}

void WorkerReactor::OnWriteDone(bool ok) {
  const grpc::ByteBuffer* next = nullptr;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    outgoing_.pop_front();
    if (ended_) return;
    if (ok && !outgoing_.empty()) next = &outgoing_.front();
    if (next == nullptr && ok && !finish_after_writes_) return;
    if (next == nullptr && greeting_aside_) {
      if (!ok) outgoing_.clear();
      if (!finish_after_writes_) final_status_ = absl::CancelledError("the worker is gone");
      finish_after_writes_ = true;
      return;
    }
    if (next == nullptr) {
      ended_ = true;
      status = ok ? final_status_ : absl::CancelledError("the worker is gone");
    }
  }
  next != nullptr ? StartWrite(next) : Finish(ToGrpcStatus(status));
}

// What was sent before still goes out.
void WorkerReactor::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    final_status_ = status;
    finish_after_writes_ = true;
    if (!outgoing_.empty() || greeting_aside_) return;
    ended_ = true;
  }
  Finish(ToGrpcStatus(status));
}

void WorkerReactor::Leave(const absl::Status& status) {
  {
    absl::MutexLock lock(&admission_);
    left_ = true;
  }
  End(status);
}

void WorkerReactor::OnCancel() {
  // Writes in progress fail by themselves and end the stream.
  Leave(absl::CancelledError("the worker is gone"));
}

void WorkerReactor::OnDone() {
  StopAwaitingGreeting();
  door_->streams->Remove(id_);
  if (sink_ != nullptr) door_->controller->WorkerDisconnected(identity_, sink_);
  const std::shared_ptr<WorkerReactor> last = std::move(self_);
}

}  // namespace tessera::services
