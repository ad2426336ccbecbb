#include "services/rest/server.h"

#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/strand.hpp"
#include "services/rest/session.h"

namespace tessera::services {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptPause(100);

class RunningServer : public RestServer {
 public:
  RunningServer(const RestOptions& options, Api* api)
      : options_(options),
        api_(api),
        handler_(api, options.content),
        io_(options.io_threads),
        pool_(static_cast<size_t>(options.handler_threads)),
        slow_pool_(static_cast<size_t>(options.slow_handler_threads)),
        acceptor_(asio::make_strand(io_)),
        accept_again_(acceptor_.get_executor()) {}
  ~RunningServer() override { Stop(absl::ZeroDuration()); }

  absl::Status Listen() {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options_.host, error);
    if (error) return absl::InvalidArgumentError(absl::StrCat("not an address: ", options_.host));
    const Tcp::endpoint endpoint(address, static_cast<unsigned short>(options_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.host, ":", options_.port, ": ", error.message()));
    }
    port_ = acceptor_.local_endpoint().port();
    Accept();
    for (int i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { io_.run(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Stop(absl::Duration grace) override {
    if (stopping_.exchange(true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      accept_again_.cancel();
    });
    ForEach([](Session& session) { session.Drain(); });
    if (!connections_.AwaitZero(grace)) ForEach([](Session& session) { session.Abort(); });
    slow_pool_.join();
    pool_.join();  // handlers are bounded by what they call; nothing may outlive api_
    connections_.AwaitZero(absl::Seconds(1));  // sockets that were told to close
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Accept() {
    acceptor_.async_accept(asio::make_strand(io_),
                           [this](boost::system::error_code error, Tcp::socket socket) {
                             if (stopping_ || error == asio::error::operation_aborted) return;
                             if (!error) {
                               Begin(std::move(socket));
                               return Accept();
                             }
                             // Out of descriptors, for one: it lasts longer than a turn of the loop.
                             accept_again_.expires_after(kAcceptPause);
                             accept_again_.async_wait([this](boost::system::error_code cancelled) {
                               if (!cancelled && !stopping_) Accept();
                             });
                           });
  }

  void Begin(Tcp::socket socket) {
    const bool full = connections_.Get() >= options_.max_connections;
    boost::system::error_code ignored;
    socket.set_option(Tcp::no_delay(true), ignored);
    auto tls = options_.tls != nullptr ? options_.tls->Current(absl::Now()) : nullptr;
    auto session = std::make_shared<Session>(
        std::move(socket), std::move(tls),
        SessionContext{options_, api_, handler_, pool_, slow_pool_, connections_, stopping_});
    {
      absl::MutexLock lock(&mutex_);
      std::erase_if(sessions_, [](const std::weak_ptr<Session>& other) { return other.expired(); });
      sessions_.push_back(session);
    }
    full ? session->Refuse() : session->Start();
  }

  void ForEach(const std::function<void(Session&)>& action) {
    std::vector<std::weak_ptr<Session>> sessions;
    {
      absl::MutexLock lock(&mutex_);
      sessions = sessions_;
    }
    for (const auto& weak : sessions) {
      if (auto session = weak.lock()) action(*session);
    }
  }

  const RestOptions options_;
  Api* const api_;
  const RestHandler handler_;
  ConnectionCount connections_;
  std::atomic<bool> stopping_ = false;
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  asio::io_context io_;
  // Until stop(): handlers that run may still ask the connections' strands for something.
  const asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  asio::thread_pool pool_;
  asio::thread_pool slow_pool_;
  Tcp::acceptor acceptor_;
  asio::steady_timer accept_again_;
  int port_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RestServer>> RestServer::Start(const RestOptions& options, Api* api) {
  auto server = std::make_unique<RunningServer>(options, api);
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return std::unique_ptr<RestServer>(std::move(server));
}

}  // namespace tessera::services
