#include "services/grpc/services.h"

namespace tessera::services {

grpc::Status GrpcPlanService::GetPlan(grpc::ServerContext* context, const v1::GetPlanRequest* request,
                                      v1::Plan* response) {
  return Answer(policy_, *context, "PlanService.GetPlan", *request, response,
                [&] { return api_->plans.Get(*request); });
}

grpc::Status GrpcPlanService::ListPlans(grpc::ServerContext* context, const v1::ListPlansRequest* request,
                                        v1::ListPlansResponse* response) {
  return Answer(policy_, *context, "PlanService.ListPlans", *request, response,
                [&] { return api_->plans.List(*request); });
}

}  // namespace tessera::services
