// A client's connection, in the clear or with TLS, as Beast's asynchronous operations want it.
#pragma once

#include <memory>
#include <utility>

#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/beast/core.hpp"

namespace tessera::services {

// Lives on its socket's strand. Movable while no operation is under way.
class Connection {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  // `tls` null: in the clear.
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> tls)
      : tcp_(std::make_unique<boost::beast::tcp_stream>(std::move(socket))), context_(std::move(tls)) {
    if (context_ != nullptr) {
      tls_ = std::make_unique<boost::asio::ssl::stream<boost::beast::tcp_stream&>>(*tcp_, *context_);
    }
  }

  bool moved() const { return tcp_ == nullptr; }
  boost::beast::tcp_stream& tcp() { return *tcp_; }
  executor_type get_executor() { return tcp_->get_executor(); }

  // At once when there is no TLS.
  template <typename Handler>
  void AsyncHandshake(Handler handler) {
    if (tls_ == nullptr) return handler(boost::beast::error_code());
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  // Says that nothing follows. `handler` keeps alive what the connection lives in.
  template <typename Handler>
  void AsyncFinish(Handler handler) {
    if (tls_ == nullptr) return ShutDown();
    tls_->async_shutdown([this, handler = std::move(handler)](boost::beast::error_code) { ShutDown(); });
  }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    tls_ != nullptr ? tls_->async_read_some(buffers, std::forward<Handler>(handler))
                    : tcp_->async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    tls_ != nullptr ? tls_->async_write_some(buffers, std::forward<Handler>(handler))
                    : tcp_->async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  void ShutDown() {
    boost::beast::error_code ignored;
    tcp_->socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  }

  std::unique_ptr<boost::beast::tcp_stream> tcp_;
  std::shared_ptr<boost::asio::ssl::context> context_;  // outlives tls_
  std::unique_ptr<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace tessera::services
