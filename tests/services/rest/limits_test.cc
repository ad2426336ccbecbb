#include <future>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/services/http_client.h"

namespace tessera::services {
namespace {

TEST(RestLimits, BodiesAndHeadersAreBounded) {
  RestOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  const Doors doors(options);
  EXPECT_EQ(Http(doors, "POST", "/v1/namespaces/default/trainingJobs", std::string(1001, ' ')).status, 413);
  EXPECT_EQ(Http(doors, "GET", "/healthz", "", "X: " + std::string(3000, 'x') + "\r\n").status, 431);
  HttpClient chunked(doors.rest->port());
  chunked.Send(
      "POST /v1/namespaces/default/trainingJobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n800\r\n" +
      std::string(0x800, ' ') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.Read().status, 413);
}

TEST(RestLimits, OneConnectionServesManyRequests) {
  const Doors doors;
  HttpClient client(doors.rest->port());
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(client.Call("GET", "/v1/nodes").body, "{\"nodes\":[{\"name\":\"here\"}]}\n");
}

TEST(RestLimits, TooManyConnectionsAreRefusedPolitely) {
  RestOptions options;
  options.max_connections = 1;
  const Doors doors(options);
  HttpClient first(doors.rest->port());
  EXPECT_EQ(first.Call("GET", "/healthz").status, 200);
  HttpClient second(doors.rest->port());
  EXPECT_EQ(second.Read().status, 503);
  EXPECT_EQ(first.Call("GET", "/healthz").status, 200);
}

TEST(RestLimits, AnIdleConnectionIsClosed) {
  RestOptions options;
  options.read_timeout = absl::Milliseconds(50);
  const Doors doors(options);
  HttpClient client(doors.rest->port());
  client.Send("GET /healthz HT");
  EXPECT_TRUE(client.AtEnd());
}

TEST(RestLimits, ASlowHandlerIsAnswered504) {
  RestOptions options;
  options.handler_timeout = absl::Milliseconds(30);
  absl::Notification go;
  options.content.ready = [&] {
    go.WaitForNotification();
    return true;
  };
  Doors doors(options);
  const HttpAnswer answer = Http(doors, "GET", "/readyz");
  go.Notify();
  EXPECT_EQ(answer.status, 504);
}

TEST(RestLimits, DrainFinishesTheRequestAndEndsIdleConnections) {
  RestOptions options;
  absl::Notification started;
  absl::Notification go;
  options.content.ready = [&] {
    started.Notify();
    go.WaitForNotification();
    return true;
  };
  Doors doors(options);
  HttpClient idle(doors.rest->port());
  EXPECT_EQ(idle.Call("GET", "/healthz").status, 200);
  auto busy = std::async(std::launch::async, [&] { return Http(doors, "GET", "/readyz").status; });
  started.WaitForNotification();
  auto stopped = std::async(std::launch::async, [&] { doors.rest->Stop(absl::Seconds(20)); });
  EXPECT_TRUE(idle.AtEnd());
  go.Notify();
  EXPECT_EQ(busy.get(), 200);
  stopped.get();
}

}  // namespace
}  // namespace tessera::services
