#include "services/grpc/services.h"

namespace tessera::services {

grpc::Status GrpcNodeService::ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest* request,
                                        v1::ListNodesResponse* response) {
  return Answer(policy_, *context, "NodeService.ListNodes", *request, response,
                [&] { return api_->nodes.List(*request); });
}

grpc::Status GrpcNodeService::ListLinks(grpc::ServerContext* context, const v1::ListLinksRequest* request,
                                        v1::ListLinksResponse* response) {
  return Answer(policy_, *context, "NodeService.ListLinks", *request, response,
                [&] { return api_->nodes.ListLinks(*request); });
}

grpc::Status GrpcNodeService::ProfileNodes(grpc::ServerContext* context,
                                           const v1::ProfileNodesRequest* request,
                                           v1::ListNodesResponse* response) {
  return Answer(policy_, *context, "NodeService.ProfileNodes", *request, response,
                [&] { return api_->nodes.Profile(*request); });
}

grpc::Status GrpcNodeService::ReportNode(grpc::ServerContext* context, const v1::ReportNodeRequest* request,
                                         v1::ReportNodeResponse* response) {
  return Answer(policy_, *context, "NodeService.ReportNode", *request, response,
                [&] { return api_->nodes.Report(*request); });
}

}  // namespace tessera::services
