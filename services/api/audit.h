// One line in the service's log for each call that changes something: who asked for what, and what came of
// it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace tessera::services {

// False for calls that only read.
bool IsMutating(const std::string& rpc);

// event=audit protocol=rest method=JobService.CancelTrainingJob job=default/x user=alice peer=127.0.0.1
// code=OK `user` is what CheckCaller returned. Text that clients sent is escaped and cut; bodies and tokens
// are never written.
std::string AuditLine(const std::string& protocol, const std::string& rpc,
                      const google::protobuf::Message& request, const std::string& user,
                      const std::string& peer, const absl::Status& status);

}  // namespace tessera::services
