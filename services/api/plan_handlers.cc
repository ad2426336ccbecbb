#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/api.h"

namespace tessera::services {

absl::StatusOr<v1::Plan> PlanHandlers::Get(const v1::GetPlanRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  if (request.generation() < 0) {
    return spec::MakeInvalid({{.path = "generation",
                               .value = absl::StrCat(request.generation()),
                               .message = "must not be negative",
                               .remedy = "use 0 for the newest"}});
  }
  TESSERA_RETURN_IF_ERROR(store_->Get(key).status());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<v1::Plan> plans, store_->Plans(key));
  if (plans.empty()) return absl::NotFoundError(absl::StrCat("job ", key.name, " has no plan yet"));
  if (request.generation() == 0) return plans.back();
  for (const v1::Plan& plan : plans) {
    if (plan.generation() == request.generation()) return plan;
  }
  return absl::NotFoundError(absl::StrCat("job ", key.name, " has no plan ", request.generation(),
                                          "; kept are ", plans.front().generation(), " to ",
                                          plans.back().generation()));
}

absl::StatusOr<v1::ListPlansResponse> PlanHandlers::List(const v1::ListPlansRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_RETURN_IF_ERROR(store_->Get(key).status());
  TESSERA_ASSIGN_OR_RETURN(std::vector<v1::Plan> plans, store_->Plans(key));
  v1::ListPlansResponse response;
  for (v1::Plan& plan : plans) *response.add_plans() = std::move(plan);
  return response;
}

}  // namespace tessera::services
