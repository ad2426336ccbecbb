#include "services/rest/session.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <future>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/post.hpp"
#include "services/rest/event_stream.h"
#include "services/rest/problem.h"

namespace tessera::services {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

HttpRequest FromBeast(http::request<http::string_body>&& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    request.headers[absl::AsciiStrToLower(std::string(field.name_string()))] = std::string(field.value());
  }
  request.body = std::move(message.body());
  return request;
}

std::string PeerOf(const asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? "" : endpoint.address().to_string();
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, std::shared_ptr<asio::ssl::context> tls,
                 const SessionContext& context)
    : stream_(std::move(socket), std::move(tls)),
      peer_(PeerOf(stream_.tcp().socket())),
      executor_(stream_.get_executor()),
      context_(context),
      timer_(executor_) {
  context_.connections.Add(1);
}

Session::~Session() { context_.connections.Add(-1); }

void Session::ShakeHands(std::function<void()> next) {
  stream_.tcp().expires_after(absl::ToChronoNanoseconds(context_.options.read_timeout));
  stream_.AsyncHandshake([self = shared_from_this(), next = std::move(next)](beast::error_code error) {
    if (!error) next();
  });
}

void Session::Start() {
  asio::post(executor_, [self = shared_from_this()] { self->ShakeHands([self] { self->Read(); }); });
}

void Session::Refuse() {
  asio::post(executor_, [self = shared_from_this()] {
    self->ShakeHands([self] {
      self->start_ = absl::Now();
      self->Reply(Problem(503, absl::ResourceExhaustedError("too many connections")), false);
    });
  });
}

void Session::Drain() {
  asio::post(executor_, [self = shared_from_this()] {
    if (auto events = self->events_.lock()) return events->Stop();
    if (self->waiting_) self->stream_.tcp().close();
  });
}

void Session::Abort() {
  asio::post(executor_, [self = shared_from_this()] {
    if (auto events = self->events_.lock()) return events->Stop();
    if (!self->stream_.moved()) self->stream_.tcp().close();
  });
}

void Session::Read() {
  if (context_.stopping) return Close();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(context_.options.max_header_bytes));
  parser_->body_limit(context_.options.max_body_bytes);
  stream_.tcp().expires_after(absl::ToChronoNanoseconds(context_.options.read_timeout));
  waiting_ = true;
  http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, std::size_t) { self->OnRead(error); });
}

void Session::OnRead(beast::error_code error) {
  waiting_ = false;
  start_ = absl::Now();
  if (error == http::error::body_limit) {
    return Reply(Problem(413, absl::InvalidArgumentError(absl::StrCat(
                                  "the body must have at most ", context_.options.max_body_bytes, " bytes"))),
                 false);
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Reply(
        Problem(431, absl::InvalidArgumentError(absl::StrCat("the header must have at most ",
                                                             context_.options.max_header_bytes, " bytes"))),
        false);
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message) return Close();
  if (error.category() == http::make_error_code(http::error::bad_method).category()) {
    return Reply(Problem(400, absl::InvalidArgumentError(absl::StrCat("not HTTP/1.1: ", error.message()))),
                 false);
  }
  if (error) return;  // time-out, reset
  Handle();
}

void Session::Handle() {
  const uint64_t number = ++request_;
  const bool keep_alive = parser_->get().keep_alive() && !context_.stopping;
  HttpRequest request = FromBeast(parser_->release());
  // Whoever watches the service must not take one whose threads are busy for a dead one.
  if (RestHandler::IsProbe(request.method, request.target)) {
    HttpReply reply = context_.handler.Handle(request);
    if (request.method == "HEAD") reply.body.clear();
    return Reply(reply, keep_alive);
  }
  request.peer = peer_;
  if (context_.options.rate_limit != nullptr) {
    if (absl::Status status = context_.options.rate_limit->Take(peer_, start_); !status.ok()) {
      HttpReply reply = Problem(status);
      reply.headers.emplace_back("Retry-After", "1");
      return Reply(reply, keep_alive);
    }
  }
  timer_.expires_after(absl::ToChronoNanoseconds(context_.options.handler_timeout));
  timer_.async_wait([self = shared_from_this(), number](beast::error_code error) {
    if (error || number != self->request_) return;
    ++self->request_;
    self->Reply(
        Problem(absl::DeadlineExceededError("the service took too long; the request may still take effect")),
        false);
  });
  request.caller_gone = [self = shared_from_this(), number] { return self->CallerGone(number); };
  asio::thread_pool& pool = RestHandler::IsSlow(request) ? context_.slow_pool : context_.pool;
  asio::post(pool, [self = shared_from_this(), number, keep_alive, request = std::move(request)] {
    HttpReply reply = self->context_.handler.Handle(request);
    const bool head = request.method == "HEAD";
    if (head) reply.body.clear();
    asio::post(self->executor_, [self, number, keep_alive, reply = std::move(reply)] {
      if (number != self->request_) return;
      ++self->request_;
      self->timer_.cancel();
      reply.watch.has_value() ? self->OpenEvents(*reply.watch) : self->Reply(reply, keep_alive);
    });
  });
}

bool Session::CallerGone(uint64_t number) {
  std::promise<bool> gone;
  asio::post(executor_, [&] {
    char byte = 0;
    const int socket = stream_.tcp().socket().native_handle();
    const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    gone.set_value(number != request_ || got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR));
  });
  return gone.get_future().get();
}

void Session::OpenEvents(const v1::WatchTrainingJobRequest& request) {
  auto events = std::make_shared<EventStream>(std::move(stream_), context_.options, request.from_revision(),
                                              shared_from_this());
  events_ = events;
  if (context_.stopping) return events->Stop();
  asio::post(context_.pool, [events, request, api = context_.api] {
    events->Open(api->jobs.Watch(request, [weak = std::weak_ptr<EventStream>(events)] {
      if (auto alive = weak.lock()) alive->Ready();
    }));
  });
}

void Session::Reply(const HttpReply& reply, bool keep_alive) {
  if (context_.options.observer != nullptr) {
    context_.options.observer->RequestDone("rest", reply.method, reply.code, absl::Now() - start_);
  }
  response_.emplace(static_cast<http::status>(reply.status), 11);
  response_->reason(HttpTitle(reply.status));
  response_->set(http::field::server, "tesserad");
  response_->set(http::field::content_type, reply.content_type);
  response_->set(http::field::cache_control, "no-store");
  response_->set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : reply.headers) response_->set(name, value);
  response_->body() = reply.body;
  response_->keep_alive(keep_alive);
  response_->prepare_payload();
  stream_.tcp().expires_after(absl::ToChronoNanoseconds(context_.options.write_timeout));
  http::async_write(stream_, *response_,
                    [self = shared_from_this(), keep_alive](beast::error_code error, std::size_t) {
                      if (error) return;
                      keep_alive ? self->Read() : self->Close();
                    });
}

void Session::Close() {
  stream_.AsyncFinish([self = shared_from_this()] {});
}

}  // namespace tessera::services
