#include "services/api/dispatch.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"

namespace tessera::services {
namespace {

using google::protobuf::Message;
using Handler = std::function<absl::StatusOr<std::unique_ptr<Message>>(Api*, const Message&)>;

template <typename Part, typename Request, typename Response>
Handler Bind(Part Api::*part, absl::StatusOr<Response> (Part::*method)(const Request&)) {
  return [=](Api* api, const Message& request) -> absl::StatusOr<std::unique_ptr<Message>> {
    auto response = ((api->*part).*method)(static_cast<const Request&>(request));
    if (!response.ok()) return response.status();
    return std::make_unique<Response>(*std::move(response));
  };
}

const std::map<std::string, Handler>& Handlers() {
  static const auto* handlers = new std::map<std::string, Handler>{
      {"JobService.CreateTrainingJob", Bind(&Api::jobs, &JobHandlers::Create)},
      {"JobService.GetTrainingJob", Bind(&Api::jobs, &JobHandlers::Get)},
      {"JobService.ListTrainingJobs", Bind(&Api::jobs, &JobHandlers::List)},
      {"JobService.UpdateTrainingJob", Bind(&Api::jobs, &JobHandlers::Update)},
      {"JobService.RecomputeBudgets", Bind(&Api::jobs, &JobHandlers::RecomputeBudgets)},
      {"JobService.ResizeTrainingJob", Bind(&Api::jobs, &JobHandlers::Resize)},
      {"JobService.GetMetrics", Bind(&Api::jobs, &JobHandlers::GetMetrics)},
      {"JobService.ListCheckpoints", Bind(&Api::jobs, &JobHandlers::ListCheckpoints)},
      {"JobService.DeleteTrainingJob", Bind(&Api::jobs, &JobHandlers::Delete)},
      {"JobService.CancelTrainingJob", Bind(&Api::jobs, &JobHandlers::Cancel)},
      {"JobService.SuspendTrainingJob", Bind(&Api::jobs, &JobHandlers::Suspend)},
      {"JobService.ResumeTrainingJob", Bind(&Api::jobs, &JobHandlers::Resume)},
      {"JobService.ListEvents", Bind(&Api::jobs, &JobHandlers::ListEvents)},
      {"JobService.GetLogs", Bind(&Api::jobs, &JobHandlers::GetLogs)},
      {"JobService.ExplainTrainingJob", Bind(&Api::jobs, &JobHandlers::Explain)},
      {"PlanService.GetPlan", Bind(&Api::plans, &PlanHandlers::Get)},
      {"PlanService.ListPlans", Bind(&Api::plans, &PlanHandlers::List)},
      {"NodeService.ListNodes", Bind(&Api::nodes, &NodeHandlers::List)},
      {"NodeService.ListLinks", Bind(&Api::nodes, &NodeHandlers::ListLinks)},
      {"NodeService.ProfileNodes", Bind(&Api::nodes, &NodeHandlers::Profile)},
      {"NodeService.ReportNode", Bind(&Api::nodes, &NodeHandlers::Report)},
  };
  return *handlers;
}

}  // namespace

std::unique_ptr<Message> NewRequest(const std::string& rpc) {
  const auto* pool = v1::TrainingJob::descriptor()->file()->pool();
  // The service definitions stand in api.proto; touching a message of it loads the file.
  v1::CreateTrainingJobRequest::descriptor();
  const auto* method = pool->FindMethodByName(absl::StrCat("tessera.v1.", rpc));
  if (method == nullptr) return nullptr;
  const auto* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(method->input_type());
  return std::unique_ptr<Message>(prototype->New());
}

absl::StatusOr<std::unique_ptr<Message>> Dispatch(Api* api, const std::string& rpc, const Message& request) {
  const auto handler = Handlers().find(rpc);
  if (handler == Handlers().end()) return absl::UnimplementedError(absl::StrCat("no unary call ", rpc));
  return handler->second(api, request);
}

}  // namespace tessera::services
