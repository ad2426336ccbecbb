// The HTTP/1.1 door on Boost.Beast: one strand per connection, handlers on their own
// threads, everything bounded.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/api/request_observer.h"
#include "services/auth/rate_limit.h"
#include "services/auth/tls_files.h"
#include "services/rest/handler.h"

namespace tessera::services {

struct RestOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0 = any
  RestContent content;
  std::shared_ptr<TlsFiles> tls;          // null: in the clear
  std::shared_ptr<RateLimit> rate_limit;  // null: none
  RequestObserver* observer = nullptr;    // may be null
  int io_threads = 1;
  int handler_threads = 4;
  int slow_handler_threads = 5;  // of calls that plan a job; one more than run, so that it can refuse
  int max_connections = 2048;
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 1 << 20;
  absl::Duration read_timeout = absl::Seconds(60);  // for a whole request, and of an idle connection
  absl::Duration write_timeout = absl::Seconds(60);
  absl::Duration handler_timeout = absl::Minutes(5);  // then 504; a model may be measured meanwhile
  absl::Duration event_keep_alive = absl::Seconds(15);
};

class RestServer {
 public:
  // Listens at once. `api` outlives it. Unavailable when the port is taken.
  static absl::StatusOr<std::unique_ptr<RestServer>> Start(const RestOptions& options, Api* api);
  virtual ~RestServer() = default;
  virtual int port() const = 0;
  // Takes no more connections, ends idle ones and event streams, lets requests end within
  // `grace`. Returns when all is over. May be called twice.
  virtual void Stop(absl::Duration grace) = 0;
};

}  // namespace tessera::services
