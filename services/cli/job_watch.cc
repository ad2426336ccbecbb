#include "services/cli/job_watch.h"

#include <utility>

namespace tessera::cli {
namespace {
// Of a job that changes faster than it is shown, older states are dropped.
constexpr size_t kMostPending = 256;
}  // namespace

JobWatch::JobWatch(Client* client, const std::string& ns, const std::string& name, Interrupts* wake)
    : client_(client), wake_(wake), thread_([this, ns, name] { Read(ns, name); }) {}

JobWatch::~JobWatch() {
  context_.TryCancel();
  thread_.join();
}

JobWatch::News JobWatch::Take() {
  absl::MutexLock lock(&mutex_);
  News news = std::move(news_);
  news_ = News();
  return news;
}

void JobWatch::Read(const std::string& ns, const std::string& name) {
  v1::WatchTrainingJobRequest request;
  request.set_namespace_(ns);
  request.set_name(name);
  client_->Prepare(&context_);
  const auto stream = client_->jobs().WatchTrainingJob(&context_, request);
  v1::WatchTrainingJobResponse response;
  while (stream->Read(&response)) {
    {
      absl::MutexLock lock(&mutex_);
      if (response.deleted()) news_.deleted = true;
      if (response.has_training_job()) {
        if (news_.jobs.size() >= kMostPending) news_.jobs.erase(news_.jobs.begin());
        news_.jobs.push_back(std::move(*response.mutable_training_job()));
      }
    }
    wake_->Notify();
  }
  const grpc::Status status = stream->Finish();
  {
    absl::MutexLock lock(&mutex_);
    news_.ended = status.ok() ? absl::OkStatus() : client_->FromGrpc(status);
  }
  wake_->Notify();
}

}  // namespace tessera::cli
