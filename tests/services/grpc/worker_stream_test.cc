#include <atomic>
#include <future>

#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/services/doors.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

v1::WorkerUp HelloOf(int rank, int epoch = 1) {
  v1::WorkerUp up;
  v1::WorkerIdentity* identity = up.mutable_hello()->mutable_identity();
  identity->set_job_uid("uid");
  identity->set_epoch(epoch);
  identity->set_rank(rank);
  return up;
}

v1::WorkerUp ProgressAt(int64_t step) {
  v1::WorkerUp up;
  up.mutable_progress()->set_step(step);
  return up;
}

grpc::StatusCode Outcome(Doors* doors, const v1::WorkerUp& first, const std::string& token) {
  auto workers = v1::WorkerService::NewStub(doors->Channel());
  grpc::ClientContext context;
  Authorize(&context, token);
  auto stream = workers->Connect(&context);
  stream->Write(first);
  v1::WorkerDown down;
  while (stream->Read(&down)) {
  }
  return stream->Finish().error_code();
}

TEST(WorkerStream, CarriesMessagesBothWaysAndSaysWhenTheWorkerIsGone) {
  Doors doors;
  auto workers = v1::WorkerService::NewStub(doors.Channel());
  grpc::ClientContext context;
  Authorize(&context, "worker-token-of-epoch-1");
  auto stream = workers->Connect(&context);
  ASSERT_TRUE(stream->Write(HelloOf(3)));
  v1::WorkerDown down;
  ASSERT_TRUE(stream->Read(&down));
  EXPECT_EQ(down.assignment().rank(), 3);
  EXPECT_EQ(down.assignment().job_name(), "shared");
  for (int step = 1; step <= 100; ++step) ASSERT_TRUE(stream->Write(ProgressAt(step)));
  EXPECT_TRUE(doors.controller.Await(
      [](FakeController& c) ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.messages_.size() == 100; }));
  EXPECT_EQ(doors.controller.messages_.front(), "3:1");
  EXPECT_EQ(doors.controller.messages_.back(), "3:100");
  v1::WorkerDown stop;
  for (int i = 0; i < 50; ++i) {
    stop.mutable_stop()->set_reason(std::to_string(i));
    doors.controller.SendToAll(stop);
  }
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(stream->Read(&down));
    EXPECT_EQ(down.stop().reason(), std::to_string(i));
  }
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&down));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(doors.controller.Await([](FakeController& c)
                                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.disconnects_ == 1; }));
}

TEST(WorkerStream, WantsTheTokenOfItsOwnGroup) {
  Doors doors;
  EXPECT_EQ(Outcome(&doors, HelloOf(0, 2), "worker-token-of-epoch-1"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Outcome(&doors, HelloOf(0), kClientToken), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Outcome(&doors, HelloOf(0), ""), grpc::StatusCode::UNAUTHENTICATED);
  v1::WorkerUp stranger = HelloOf(0);
  stranger.mutable_hello()->mutable_identity()->set_job_uid("other");
  EXPECT_EQ(Outcome(&doors, stranger, "worker-token-of-epoch-1"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(doors.controller.disconnects_, 0);
}

// A door whose review takes the token "of-rank-N" of rank N, and that of rank 7 only when `gate` opens.
struct ReviewedDoor {
  ReviewedDoor() {
    GrpcOptions options;
    options.policy.token = std::make_shared<ClientToken>(kClientToken);
    options.hello_deadline = kPatience;
    options.worker_review = [this](const std::string& token, const v1::WorkerIdentity& worker) {
      if (worker.rank() == 7) {
        under_review.set_value();
        gate.get_future().wait();
      }
      if (token == "of-rank-" + std::to_string(worker.rank())) return absl::OkStatus();
      return absl::PermissionDeniedError("not its token");
    };
    server = *GrpcServer::Start(options, &doors.api, &doors.controller);
  }
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(server->port()),
                               grpc::InsecureChannelCredentials());
  }
  // The rank of the assignment; -1 and the stream's end in `code`: none came.
  int Greet(int rank, const std::string& token, grpc::StatusCode* code) {
    auto workers = v1::WorkerService::NewStub(Channel());
    grpc::ClientContext context;
    Authorize(&context, token);
    auto stream = workers->Connect(&context);
    stream->Write(HelloOf(rank));
    v1::WorkerDown down;
    const bool greeted = stream->Read(&down);
    if (greeted) stream->WritesDone();
    while (stream->Read(&down)) {
    }
    *code = stream->Finish().error_code();
    return greeted ? down.assignment().rank() : -1;
  }

  Doors doors;
  std::promise<void> under_review;
  std::promise<void> gate;
  std::unique_ptr<GrpcServer> server;
};

TEST(WorkerStream, TakesATokenThatIsReviewedAndStillThatOfTheGroup) {
  ReviewedDoor door;
  grpc::StatusCode code;
  EXPECT_EQ(door.Greet(3, "of-rank-3", &code), 3);
  EXPECT_EQ(code, grpc::StatusCode::OK);
  EXPECT_EQ(door.Greet(3, "worker-token-of-epoch-1", &code), 3);
  EXPECT_EQ(door.Greet(3, "of-rank-4", &code), -1);
  EXPECT_EQ(code, grpc::StatusCode::PERMISSION_DENIED);
}

TEST(WorkerStream, AReviewThatWaitsHoldsUpNobodyAndItsWorkerMayGoMeanwhile) {
  ReviewedDoor door;
  auto workers = v1::WorkerService::NewStub(door.Channel());
  grpc::ClientContext context;
  Authorize(&context, "of-rank-7");
  auto stream = workers->Connect(&context);
  ASSERT_TRUE(stream->Write(HelloOf(7)));
  grpc::StatusCode code;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(door.Greet(rank, "of-rank-" + std::to_string(rank), &code), rank);
  }
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  door.gate.set_value();
  door.server->Stop(absl::ZeroDuration());  // returns when all streams are over
  // Whether the server had heard of it before the gate opened is the network's affair.
  EXPECT_GE(door.doors.controller.disconnects_, 3);
  EXPECT_LE(door.doors.controller.disconnects_, 4);
}

TEST(WorkerStream, OneThatEndedWhileItsTokenWasReviewedIsNeverConnected) {
  ReviewedDoor door;
  auto workers = v1::WorkerService::NewStub(door.Channel());
  grpc::ClientContext context, later_context;
  Authorize(&context, "of-rank-7");
  auto stream = workers->Connect(&context);
  ASSERT_TRUE(stream->Write(HelloOf(7)));
  door.under_review.get_future().wait();
  Authorize(&later_context, "of-rank-0");
  auto later = workers->Connect(&later_context);
  ASSERT_TRUE(later->Write(HelloOf(0)));
  v1::WorkerDown down;
  ASSERT_TRUE(later->Read(&down));
  // Streams are ended in the order in which they came: where the later one's end is seen the other has ended.
  auto stopping = std::async(std::launch::async, [&] { door.server->Stop(absl::ZeroDuration()); });
  EXPECT_FALSE(later->Read(&down));
  EXPECT_EQ(later->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  door.gate.set_value();
  stopping.wait();
  EXPECT_EQ(door.doors.controller.disconnects_, 1) << "rank 7 was connected";
}

TEST(WorkerStream, ASilentStrangerIsSentAway) {
  Doors doors({}, 4, /*hello_deadline=*/absl::Milliseconds(50));
  auto workers = v1::WorkerService::NewStub(doors.Channel());
  grpc::ClientContext context;
  Authorize(&context, "any-token");
  auto stream = workers->Connect(&context);
  v1::WorkerDown down;
  EXPECT_FALSE(stream->Read(&down));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST(WorkerStream, WhoIsSilentLongestMakesRoomForOthers) {
  Doors doors;
  GrpcOptions options;
  options.policy.token = std::make_shared<ClientToken>(kClientToken);
  options.hello_deadline = absl::Hours(1);
  options.max_silent = 1;
  const auto narrow = *GrpcServer::Start(options, &doors.api, &doors.controller);
  auto workers = v1::WorkerService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(narrow->port()), grpc::InsecureChannelCredentials()));
  std::atomic<bool> gone = false;
  auto stranger = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    Authorize(&context, "any-token");
    auto stream = workers->Connect(&context);
    v1::WorkerDown down;
    EXPECT_FALSE(stream->Read(&down));
    gone = true;
    return stream->Finish().error_code();
  });
  const auto is_greeted = [&] {
    grpc::ClientContext context;
    Authorize(&context, "worker-token-of-epoch-1");
    auto stream = workers->Connect(&context);
    stream->Write(HelloOf(0));
    v1::WorkerDown down;
    const bool greeted = stream->Read(&down);
    if (greeted) context.TryCancel();
    const grpc::StatusCode code = stream->Finish().error_code();
    EXPECT_EQ(code, greeted ? grpc::StatusCode::CANCELLED : grpc::StatusCode::RESOURCE_EXHAUSTED);
    return greeted;
  };
  while (!gone) is_greeted();  // one that comes just before the stranger may make room for it
  EXPECT_EQ(stranger.get(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(is_greeted());
}

TEST(WorkerStream, AFinishedThatIsNotStoredIsNotConfirmed) {
  Doors doors;
  auto workers = v1::WorkerService::NewStub(doors.Channel());
  grpc::ClientContext context;
  Authorize(&context, "worker-token-of-epoch-1");
  auto stream = workers->Connect(&context);
  ASSERT_TRUE(stream->Write(HelloOf(0)));
  v1::WorkerUp finished;
  finished.mutable_finished()->set_outcome(v1::WORKER_OUTCOME_COMPLETED);
  ASSERT_TRUE(stream->Write(finished));
  stream->WritesDone();
  EXPECT_TRUE(doors.controller.Await([](FakeController& c)
                                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.messages_.size() == 1; }));
  {
    absl::MutexLock lock(&doors.controller.mutex_);
    for (const auto& sink : doors.controller.sinks_) sink->Close(absl::UnavailableError("not stored"));
  }
  v1::WorkerDown down;
  while (stream->Read(&down)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(WorkerStream, BeginsWithAHello) {
  Doors doors;
  EXPECT_EQ(Outcome(&doors, ProgressAt(1), "worker-token-of-epoch-1"), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(WorkerStream, SaysThatABrokenMessageIsOne) {
  Doors doors;
  grpc::GenericStub stub(doors.Channel());
  grpc::ClientContext context;
  Authorize(&context, "worker-token-of-epoch-1");
  grpc::CompletionQueue queue;
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok);
  };
  auto call = stub.PrepareCall(&context, "/tessera.v1.WorkerService/Connect", &queue);
  call->StartCall(&queue);
  ASSERT_TRUE(done());
  const grpc::Slice nonsense(std::string("\xff\xff\xff"));
  call->Write(grpc::ByteBuffer(&nonsense, 1), &queue);
  ASSERT_TRUE(done());
  grpc::Status status;
  call->Finish(&status, &queue);
  ASSERT_TRUE(done());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(WorkerStream, PassesTheControllersRefusalOn) {
  Doors doors;
  EXPECT_EQ(Outcome(&doors, HelloOf(8), "worker-token-of-epoch-1"), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(WorkerStream, AKilledWorkerIsReported) {
  Doors doors;
  {
    auto workers = v1::WorkerService::NewStub(doors.Channel());
    grpc::ClientContext context;
    Authorize(&context, "worker-token-of-epoch-1");
    auto stream = workers->Connect(&context);
    stream->Write(HelloOf(0));
    v1::WorkerDown down;
    ASSERT_TRUE(stream->Read(&down));
    context.TryCancel();
    stream->Finish();
  }
  EXPECT_TRUE(doors.controller.Await([](FakeController& c)
                                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.disconnects_ == 1; }));
}

TEST(WorkerStore, AGetWaitsForTheKey) {
  Doors doors;
  auto workers = v1::WorkerService::NewStub(doors.Channel());
  v1::StoreRequest request;
  request.set_job_uid("uid");
  request.set_epoch(1);
  request.add_keys("k");
  request.set_operation(v1::StoreRequest::OPERATION_GET);
  auto got = std::async(std::launch::async, [&, request] {
    grpc::ClientContext context;
    Authorize(&context, "worker-token-of-epoch-1");
    v1::StoreResponse response;
    EXPECT_TRUE(workers->Store(&context, request, &response).ok());
    return response.values_size() == 1 ? response.values(0) : "";
  });
  request.set_operation(v1::StoreRequest::OPERATION_SET);
  request.set_value("v");
  grpc::ClientContext context;
  Authorize(&context, "worker-token-of-epoch-1");
  v1::StoreResponse response;
  EXPECT_TRUE(workers->Store(&context, request, &response).ok());
  EXPECT_EQ(got.get(), "v");
}

TEST(WorkerStore, WantsTheWorkersToken) {
  Doors doors;
  auto workers = v1::WorkerService::NewStub(doors.Channel());
  v1::StoreRequest request;
  request.set_job_uid("uid");
  request.set_epoch(1);
  request.add_keys("k");
  grpc::ClientContext context;
  Authorize(&context);
  v1::StoreResponse response;
  EXPECT_EQ(workers->Store(&context, request, &response).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST(WorkerStore, AWaitingGetDoesNotHoldUpAStop) {
  Doors doors;
  auto workers = v1::WorkerService::NewStub(doors.Channel());
  auto got = std::async(std::launch::async, [&] {
    v1::StoreRequest request;
    request.set_job_uid("uid");
    request.set_epoch(1);
    request.add_keys("never");
    request.set_operation(v1::StoreRequest::OPERATION_GET);
    grpc::ClientContext context;
    Authorize(&context, "worker-token-of-epoch-1");
    v1::StoreResponse response;
    return workers->Store(&context, request, &response).ok();
  });
  doors.grpc->Stop(absl::Milliseconds(50));
  EXPECT_FALSE(got.get());  // held up, Stop would wait for the call's own ten minutes
}

}  // namespace
}  // namespace tessera::services
