// The generated services, filled in. Unary calls run on gRPC's threads; streams are
// reactors.
#pragma once

#include "boost/asio/thread_pool.hpp"
#include "services/api/api.h"
#include "services/grpc/call.h"
#include "services/grpc/open_streams.h"
#include "services/grpc/worker_reactor.h"
#include "tessera/v1/api.grpc.pb.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::services {

class GrpcJobService final
    : public v1::JobService::WithCallbackMethod_WatchTrainingJob<v1::JobService::Service> {
 public:
  GrpcJobService(Api* api, const CallPolicy& policy, OpenStreams* streams, boost::asio::thread_pool* openers)
      : api_(api), policy_(policy), streams_(streams), openers_(openers) {}
  grpc::Status CreateTrainingJob(grpc::ServerContext* context, const v1::CreateTrainingJobRequest* request,
                                 v1::CreateTrainingJobResponse* response) override;
  grpc::Status GetTrainingJob(grpc::ServerContext* context, const v1::GetTrainingJobRequest* request,
                              v1::TrainingJob* response) override;
  grpc::Status ListTrainingJobs(grpc::ServerContext* context, const v1::ListTrainingJobsRequest* request,
                                v1::ListTrainingJobsResponse* response) override;
  grpc::Status DeleteTrainingJob(grpc::ServerContext* context, const v1::DeleteTrainingJobRequest* request,
                                 google::protobuf::Empty* response) override;
  grpc::Status CancelTrainingJob(grpc::ServerContext* context, const v1::CancelTrainingJobRequest* request,
                                 v1::TrainingJob* response) override;
  grpc::Status SuspendTrainingJob(grpc::ServerContext* context, const v1::SuspendTrainingJobRequest* request,
                                  v1::TrainingJob* response) override;
  grpc::Status ResumeTrainingJob(grpc::ServerContext* context, const v1::ResumeTrainingJobRequest* request,
                                 v1::TrainingJob* response) override;
  grpc::Status ListEvents(grpc::ServerContext* context, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override;
  grpc::Status GetLogs(grpc::ServerContext* context, const v1::GetLogsRequest* request,
                       v1::GetLogsResponse* response) override;
  grpc::Status ExplainTrainingJob(grpc::ServerContext* context, const v1::ExplainTrainingJobRequest* request,
                                  v1::ExplainTrainingJobResponse* response) override;
  grpc::Status UpdateTrainingJob(grpc::ServerContext* context, const v1::UpdateTrainingJobRequest* request,
                                 v1::TrainingJob* response) override;
  grpc::Status RecomputeBudgets(grpc::ServerContext* context, const v1::RecomputeBudgetsRequest* request,
                                v1::TrainingJob* response) override;
  grpc::Status ResizeTrainingJob(grpc::ServerContext* context, const v1::ResizeTrainingJobRequest* request,
                                 v1::TrainingJob* response) override;
  grpc::Status GetMetrics(grpc::ServerContext* context, const v1::GetMetricsRequest* request,
                          v1::GetMetricsResponse* response) override;
  grpc::Status ListCheckpoints(grpc::ServerContext* context, const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchTrainingJobResponse>* WatchTrainingJob(
      grpc::CallbackServerContext* context, const v1::WatchTrainingJobRequest* request) override;

 private:
  Api* const api_;
  const CallPolicy policy_;
  OpenStreams* const streams_;
  boost::asio::thread_pool* const openers_;
};

class GrpcPlanService final : public v1::PlanService::Service {
 public:
  GrpcPlanService(Api* api, const CallPolicy& policy) : api_(api), policy_(policy) {}
  grpc::Status GetPlan(grpc::ServerContext* context, const v1::GetPlanRequest* request,
                       v1::Plan* response) override;
  grpc::Status ListPlans(grpc::ServerContext* context, const v1::ListPlansRequest* request,
                         v1::ListPlansResponse* response) override;

 private:
  Api* const api_;
  const CallPolicy policy_;
};

class GrpcNodeService final : public v1::NodeService::Service {
 public:
  GrpcNodeService(Api* api, const CallPolicy& policy) : api_(api), policy_(policy) {}
  grpc::Status ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest* request,
                         v1::ListNodesResponse* response) override;
  grpc::Status ListLinks(grpc::ServerContext* context, const v1::ListLinksRequest* request,
                         v1::ListLinksResponse* response) override;
  grpc::Status ProfileNodes(grpc::ServerContext* context, const v1::ProfileNodesRequest* request,
                            v1::ListNodesResponse* response) override;
  grpc::Status ReportNode(grpc::ServerContext* context, const v1::ReportNodeRequest* request,
                          v1::ReportNodeResponse* response) override;

 private:
  Api* const api_;
  const CallPolicy policy_;
};

// Asks for the token of the worker or group named in the message, never the clients'.
class GrpcWorkerService final
    : public v1::WorkerService::WithRawCallbackMethod_Connect<v1::WorkerService::Service> {
 public:
  GrpcWorkerService(WorkerDoor door, absl::Duration hello_deadline, size_t max_silent)
      : door_(std::move(door)), greetings_(hello_deadline, max_silent) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Connect(
      grpc::CallbackServerContext* context) override;
  grpc::Status Store(grpc::ServerContext* context, const v1::StoreRequest* request,
                     v1::StoreResponse* response) override;

 private:
  const WorkerDoor door_;
  Greetings greetings_;
};

}  // namespace tessera::services
