// What the scheduler tells workers, in wire format. Parts of one message may follow each other there, so what
// all ranks are told, a whole plan at times, is written once and shared, however many they are.
#pragma once

#include <memory>
#include <string>

#include "tessera/v1/worker.pb.h"

namespace tessera::scheduler {

struct DownMessage {
  std::shared_ptr<const std::string> shared;  // a v1::WorkerDown; never null
  std::string own;                            // another one of the same kind, merged over it; may be empty
};

DownMessage ToAll(const v1::WorkerDown& message);
// As the worker reads it.
v1::WorkerDown Read(const DownMessage& message);

}  // namespace tessera::scheduler
