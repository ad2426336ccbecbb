// A watch as server-sent events: `id:` is the revision, a comment keeps the connection
// alive, a client that does not read is cut off. Lives on the connection's strand.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core.hpp"
#include "services/api/watch_stream.h"
#include "services/rest/connection.h"
#include "services/rest/server.h"

namespace tessera::services {

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  // Takes the connection over; `keeps` is held until the end (the session's place among
  // the connections). Updates up to revision `seen` are left out.
  EventStream(Connection stream, const RestOptions& options, int64_t seen, std::shared_ptr<void> keeps);

  // Begins, or answers with a problem document. Any thread, once.
  void Open(absl::StatusOr<std::shared_ptr<WatchStream>> watch);
  // The watch has something. Any thread.
  void Ready();
  // The server is stopping. Any thread.
  void Stop();

 private:
  void Begin(absl::StatusOr<std::shared_ptr<WatchStream>> watch);
  void Pump();
  void Write(std::string text, bool last);
  void Send(scheduler::SharedUpdate update);
  void Written(boost::beast::error_code error, bool last);
  void AwaitKeepAlive();
  void AwaitClose();
  void End();

  Connection stream_;
  const RestOptions& options_;
  const int64_t seen_;
  std::shared_ptr<void> keeps_;
  std::shared_ptr<WatchStream> watch_;
  boost::asio::steady_timer timer_;
  std::string writing_;             // what is being written; of an update, what stands before its JSON
  scheduler::SharedUpdate update_;  // whose JSON is being written
  bool busy_ = false;
  bool stalled_ = false;  // the write under way was so at the last keep-alive too
  bool ended_ = false;
  const absl::Time start_ = absl::Now();
  char ignored_[256];
};

}  // namespace tessera::services
