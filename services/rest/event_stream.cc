#include "services/rest/event_stream.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "boost/asio/post.hpp"
#include "boost/asio/write.hpp"
#include "services/rest/problem.h"

namespace tessera::services {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr char kHead[] =
    "HTTP/1.1 200 OK\r\nServer: tesserad\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    "Connection: close\r\n\r\n";

constexpr char kEventEnd[] = "\n\n";

std::string WholeReply(const HttpReply& reply) {
  return absl::StrCat("HTTP/1.1 ", reply.status, " ", HttpTitle(reply.status),
                      "\r\nServer: tesserad\r\nContent-Type: ", reply.content_type,
                      "\r\nContent-Length: ", reply.body.size(), "\r\nConnection: close\r\n\r\n", reply.body);
}

}  // namespace

EventStream::EventStream(Connection stream, const RestOptions& options, int64_t seen,
                         std::shared_ptr<void> keeps)
    : stream_(std::move(stream)),
      options_(options),
      seen_(seen),
      keeps_(std::move(keeps)),
      timer_(stream_.get_executor()) {
  stream_.tcp().expires_never();
}

void EventStream::Open(absl::StatusOr<std::shared_ptr<WatchStream>> watch) {
  asio::post(stream_.get_executor(), [self = shared_from_this(), watch = std::move(watch)]() mutable {
    self->Begin(std::move(watch));
  });
}

void EventStream::Ready() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] { self->Pump(); });
}

void EventStream::Stop() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] { self->End(); });
}

void EventStream::Begin(absl::StatusOr<std::shared_ptr<WatchStream>> watch) {
  if (options_.observer != nullptr) {
    options_.observer->RequestDone("rest", "JobService.WatchTrainingJob", watch.status().code(),
                                   absl::Now() - start_);
  }
  if (!watch.ok()) {
    // A revision that is no longer kept is gone for good: the client starts anew.
    const bool too_old = absl::IsOutOfRange(watch.status());
    return Write(WholeReply(too_old ? Problem(410, watch.status()) : Problem(watch.status())), true);
  }
  watch_ = *std::move(watch);
  if (ended_) return watch_->Close();
  Write(kHead, false);
  AwaitClose();
  AwaitKeepAlive();
}

void EventStream::Pump() {
  if (busy_ || ended_ || watch_ == nullptr) return;
  while (auto update = watch_->Take()) {
    const v1::WatchTrainingJobResponse& message = update->message();
    if (message.revision() <= seen_ && seen_ > 0 && !message.deleted()) continue;
    return Send(std::move(update));
  }
}

void EventStream::Write(std::string text, bool last) {
  busy_ = true;
  stalled_ = false;
  writing_ = std::move(text);
  asio::async_write(stream_, asio::buffer(writing_),
                    [self = shared_from_this(), last](beast::error_code error, std::size_t) {
                      self->Written(error, last);
                    });
}

void EventStream::Send(scheduler::SharedUpdate update) {
  busy_ = true;
  stalled_ = false;
  update_ = std::move(update);
  const v1::WatchTrainingJobResponse& message = update_->message();
  writing_ = absl::StrCat("id: ", message.revision(), "\nevent: ", message.deleted() ? "deleted" : "update",
                          "\ndata: ");
  const std::array<asio::const_buffer, 3> parts = {asio::buffer(writing_), asio::buffer(update_->Json()),
                                                   asio::buffer(kEventEnd, 2)};
  asio::async_write(stream_, parts,
                    [self = shared_from_this(), last = message.deleted()](
                        beast::error_code error, std::size_t) { self->Written(error, last); });
}

void EventStream::Written(beast::error_code error, bool last) {
  busy_ = false;
  update_ = nullptr;
  error || last ? End() : Pump();
}

void EventStream::AwaitKeepAlive() {
  timer_.expires_after(absl::ToChronoNanoseconds(options_.event_keep_alive));
  timer_.async_wait([self = shared_from_this()](beast::error_code error) {
    if (error || self->ended_) return;
    if (self->busy_ && self->stalled_) return self->End();
    self->stalled_ = self->busy_;
    if (!self->busy_) self->Write(": keep-alive\n\n", false);
    self->AwaitKeepAlive();
  });
}

// A client sends nothing more; the end of its side ends ours.
void EventStream::AwaitClose() {
  stream_.async_read_some(asio::buffer(ignored_),
                          [self = shared_from_this()](beast::error_code error, std::size_t) {
                            error ? self->End() : self->AwaitClose();
                          });
}

void EventStream::End() {
  if (ended_) return;
  ended_ = true;
  timer_.cancel();
  if (watch_ != nullptr) watch_->Close();
  beast::error_code ignored;
  stream_.tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.tcp().close();
  keeps_ = nullptr;
}

}  // namespace tessera::services
