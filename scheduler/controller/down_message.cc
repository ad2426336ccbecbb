#include "scheduler/controller/down_message.h"

#include "base/check.h"

namespace tessera::scheduler {

DownMessage ToAll(const v1::WorkerDown& message) {
  return {std::make_shared<const std::string>(message.SerializeAsString()), ""};
}

v1::WorkerDown Read(const DownMessage& message) {
  v1::WorkerDown read;
  TESSERA_CHECK(read.ParseFromString(*message.shared) && read.MergeFromString(message.own));
  return read;
}

}  // namespace tessera::scheduler
