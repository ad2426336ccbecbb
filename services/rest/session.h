// One connection: reads a request, has it handled on the pool, writes the reply, and so
// on; or turns into an event stream. Lives on its strand, owned by its pending work.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "services/api/api.h"
#include "services/rest/connection.h"
#include "services/rest/connection_count.h"
#include "services/rest/handler.h"
#include "services/rest/server.h"

namespace tessera::services {

// What all sessions of a server share. Outlives them.
struct SessionContext {
  const RestOptions& options;
  Api* api;
  const RestHandler& handler;
  boost::asio::thread_pool& pool;
  boost::asio::thread_pool& slow_pool;  // of calls that take seconds
  ConnectionCount& connections;
  std::atomic<bool>& stopping;
};

class EventStream;

class Session : public std::enable_shared_from_this<Session> {
 public:
  // Counted in context.connections until it is destroyed.
  Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> tls,
          const SessionContext& context);
  ~Session();

  void Start();
  // The server has too many connections: says so and closes.
  void Refuse();
  // Ends it when it waits for a request or streams events. Any thread.
  void Drain();
  // Ends it now. Any thread.
  void Abort();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Response = boost::beast::http::response<boost::beast::http::string_body>;

  // Then `next`, on the strand; a client that does not come through is dropped.
  void ShakeHands(std::function<void()> next);
  void Read();
  void OnRead(boost::beast::error_code error);
  void Handle();
  void Reply(const HttpReply& reply, bool keep_alive);
  // The request was answered (504) or its caller hung up. Waits for the strand: not on it.
  bool CallerGone(uint64_t number);
  void OpenEvents(const v1::WatchTrainingJobRequest& request);
  void Close();

  Connection stream_;  // moved away when events begin
  const std::string peer_;
  const boost::asio::any_io_executor executor_;  // the strand
  const SessionContext context_;
  std::weak_ptr<EventStream> events_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::optional<Response> response_;
  boost::asio::steady_timer timer_;  // of the running handler
  uint64_t request_ = 0;             // number of the request; late answers to older ones are dropped
  bool waiting_ = false;             // for a request to begin
  absl::Time start_;
};

}  // namespace tessera::services
