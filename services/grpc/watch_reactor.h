// One WatchTrainingJob stream: updates go out as fast as the client reads them.
#pragma once

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/thread_pool.hpp"
#include "grpcpp/grpcpp.h"
#include "services/api/api.h"
#include "services/grpc/call.h"
#include "services/grpc/open_streams.h"

namespace tessera::services {

class WatchReactor : public grpc::ServerWriteReactor<v1::WatchTrainingJobResponse>,
                     public std::enable_shared_from_this<WatchReactor> {
 public:
  // Lives until gRPC is done with it. Never null. Who may watch is asked by `openers`, as that can block.
  static grpc::ServerWriteReactor<v1::WatchTrainingJobResponse>* Start(
      Api* api, const CallPolicy& policy, OpenStreams* streams, boost::asio::thread_pool* openers,
      const grpc::ServerContextBase& context, const v1::WatchTrainingJobRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchReactor(const CallPolicy& policy, OpenStreams* streams) : policy_(policy), streams_(streams) {}
  void Open(Api* api, const Caller& caller, const v1::WatchTrainingJobRequest& request);
  void Pump();
  void End(const absl::Status& status);    // now, or when the write under way is over
  void Close(const absl::Status& status);  // once

  const CallPolicy policy_;
  OpenStreams* const streams_;
  const absl::Time start_ = absl::Now();
  int id_ = 0;
  std::shared_ptr<WatchReactor> self_;  // until OnDone
  absl::Mutex mutex_;
  std::shared_ptr<WatchStream> stream_ ABSL_GUARDED_BY(mutex_);
  scheduler::SharedUpdate current_;  // being written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status final_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::services
