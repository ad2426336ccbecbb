#include "services/grpc/watch_reactor.h"

#include "boost/asio/post.hpp"

namespace tessera::services {

grpc::ServerWriteReactor<v1::WatchTrainingJobResponse>* WatchReactor::Start(
    Api* api, const CallPolicy& policy, OpenStreams* streams, boost::asio::thread_pool* openers,
    const grpc::ServerContextBase& context, const v1::WatchTrainingJobRequest& request) {
  std::shared_ptr<WatchReactor> reactor(new WatchReactor(policy, streams));
  reactor->self_ = reactor;
  reactor->id_ = streams->Add([weak = std::weak_ptr<WatchReactor>(reactor)] {
    if (auto alive = weak.lock()) alive->End(absl::UnavailableError("the service is stopping"));
  });
  // Request and context are gone when the call is, which may be before its turn comes.
  boost::asio::post(
      *openers, [reactor, api, caller = Caller(context), request] { reactor->Open(api, caller, request); });
  return reactor.get();
}

void WatchReactor::Open(Api* api, const Caller& caller, const v1::WatchTrainingJobRequest& request) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
  }
  if (absl::Status status = CheckClient(policy_, caller, "JobService.WatchTrainingJob").status();
      !status.ok())
    return End(status);
  auto stream = api->jobs.Watch(request, [weak = weak_from_this()] {
    if (auto alive = weak.lock()) alive->Pump();
  });
  if (!stream.ok()) return End(stream.status());
  auto unwanted = *std::move(stream);
  {
    absl::MutexLock lock(&mutex_);
    if (!ended_) stream_.swap(unwanted);
  }
  unwanted == nullptr ? Pump() : unwanted->Close();  // which nobody else will
}

void WatchReactor::Pump() {
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || ended_ || stream_ == nullptr) return;
    auto update = stream_->Take();
    if (update == nullptr) return;
    current_ = std::move(update);
    writing_ = true;
  }
  StartWrite(&current_->message());
}

void WatchReactor::OnWriteDone(bool ok) {
  std::optional<absl::Status> end;
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (ended_) {
      end = final_status_;  // asked for while this write was under way
    } else if (!ok) {
      end = absl::CancelledError("the client is gone");
    } else if (current_->message().deleted()) {
      end = absl::OkStatus();
    }
    if (end.has_value()) ended_ = true;
  }
  end.has_value() ? Close(*end) : Pump();
}

void WatchReactor::OnCancel() { End(absl::CancelledError("the client is gone")); }

void WatchReactor::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    final_status_ = status;
    if (writing_) return;
  }
  Close(status);
}

void WatchReactor::Close(const absl::Status& status) {
  Report(policy_, "JobService.WatchTrainingJob", status, start_);
  Finish(ToGrpcStatus(status));
}

void WatchReactor::OnDone() {
  streams_->Remove(id_);
  std::shared_ptr<WatchStream> stream;
  {
    absl::MutexLock lock(&mutex_);
    stream = std::move(stream_);
  }
  if (stream != nullptr) stream->Close();
  const std::shared_ptr<WatchReactor> last = std::move(self_);
}

}  // namespace tessera::services
