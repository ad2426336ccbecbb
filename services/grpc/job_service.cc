#include "services/grpc/services.h"
#include "services/grpc/watch_reactor.h"

namespace tessera::services {

grpc::Status GrpcJobService::CreateTrainingJob(grpc::ServerContext* context,
                                               const v1::CreateTrainingJobRequest* request,
                                               v1::CreateTrainingJobResponse* response) {
  return Answer(policy_, *context, "JobService.CreateTrainingJob", *request, response,
                [&] { return api_->jobs.Create(*request, [context] { return context->IsCancelled(); }); });
}

grpc::Status GrpcJobService::GetTrainingJob(grpc::ServerContext* context,
                                            const v1::GetTrainingJobRequest* request,
                                            v1::TrainingJob* response) {
  return Answer(policy_, *context, "JobService.GetTrainingJob", *request, response,
                [&] { return api_->jobs.Get(*request); });
}

grpc::Status GrpcJobService::ListTrainingJobs(grpc::ServerContext* context,
                                              const v1::ListTrainingJobsRequest* request,
                                              v1::ListTrainingJobsResponse* response) {
  return Answer(policy_, *context, "JobService.ListTrainingJobs", *request, response,
                [&] { return api_->jobs.List(*request); });
}

grpc::Status GrpcJobService::DeleteTrainingJob(grpc::ServerContext* context,
                                               const v1::DeleteTrainingJobRequest* request,
                                               google::protobuf::Empty* response) {
  return Answer(policy_, *context, "JobService.DeleteTrainingJob", *request, response,
                [&] { return api_->jobs.Delete(*request); });
}

grpc::Status GrpcJobService::CancelTrainingJob(grpc::ServerContext* context,
                                               const v1::CancelTrainingJobRequest* request,
                                               v1::TrainingJob* response) {
  return Answer(policy_, *context, "JobService.CancelTrainingJob", *request, response,
                [&] { return api_->jobs.Cancel(*request); });
}

grpc::Status GrpcJobService::SuspendTrainingJob(grpc::ServerContext* context,
                                                const v1::SuspendTrainingJobRequest* request,
                                                v1::TrainingJob* response) {
  return Answer(policy_, *context, "JobService.SuspendTrainingJob", *request, response,
                [&] { return api_->jobs.Suspend(*request); });
}

grpc::Status GrpcJobService::ResumeTrainingJob(grpc::ServerContext* context,
                                               const v1::ResumeTrainingJobRequest* request,
                                               v1::TrainingJob* response) {
  return Answer(policy_, *context, "JobService.ResumeTrainingJob", *request, response,
                [&] { return api_->jobs.Resume(*request); });
}

grpc::Status GrpcJobService::ListEvents(grpc::ServerContext* context, const v1::ListEventsRequest* request,
                                        v1::ListEventsResponse* response) {
  return Answer(policy_, *context, "JobService.ListEvents", *request, response,
                [&] { return api_->jobs.ListEvents(*request); });
}

grpc::Status GrpcJobService::GetLogs(grpc::ServerContext* context, const v1::GetLogsRequest* request,
                                     v1::GetLogsResponse* response) {
  return Answer(policy_, *context, "JobService.GetLogs", *request, response,
                [&] { return api_->jobs.GetLogs(*request); });
}

grpc::Status GrpcJobService::ExplainTrainingJob(grpc::ServerContext* context,
                                                const v1::ExplainTrainingJobRequest* request,
                                                v1::ExplainTrainingJobResponse* response) {
  return Answer(policy_, *context, "JobService.ExplainTrainingJob", *request, response,
                [&] { return api_->jobs.Explain(*request); });
}

grpc::Status GrpcJobService::UpdateTrainingJob(grpc::ServerContext* context,
                                               const v1::UpdateTrainingJobRequest* request,
                                               v1::TrainingJob* response) {
  return Answer(policy_, *context, "JobService.UpdateTrainingJob", *request, response,
                [&] { return api_->jobs.Update(*request); });
}

grpc::Status GrpcJobService::RecomputeBudgets(grpc::ServerContext* context,
                                              const v1::RecomputeBudgetsRequest* request,
                                              v1::TrainingJob* response) {
  return Answer(policy_, *context, "JobService.RecomputeBudgets", *request, response,
                [&] { return api_->jobs.RecomputeBudgets(*request); });
}

grpc::Status GrpcJobService::ResizeTrainingJob(grpc::ServerContext* context,
                                               const v1::ResizeTrainingJobRequest* request,
                                               v1::TrainingJob* response) {
  return Answer(policy_, *context, "JobService.ResizeTrainingJob", *request, response,
                [&] { return api_->jobs.Resize(*request); });
}

grpc::Status GrpcJobService::GetMetrics(grpc::ServerContext* context, const v1::GetMetricsRequest* request,
                                        v1::GetMetricsResponse* response) {
  return Answer(policy_, *context, "JobService.GetMetrics", *request, response,
                [&] { return api_->jobs.GetMetrics(*request); });
}

grpc::Status GrpcJobService::ListCheckpoints(grpc::ServerContext* context,
                                             const v1::ListCheckpointsRequest* request,
                                             v1::ListCheckpointsResponse* response) {
  return Answer(policy_, *context, "JobService.ListCheckpoints", *request, response,
                [&] { return api_->jobs.ListCheckpoints(*request); });
}

grpc::ServerWriteReactor<v1::WatchTrainingJobResponse>* GrpcJobService::WatchTrainingJob(
    grpc::CallbackServerContext* context, const v1::WatchTrainingJobRequest* request) {
  return WatchReactor::Start(api_, policy_, streams_, openers_, *context, *request);
}

}  // namespace tessera::services
