#include "worker/cuda/nccl_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/comm/nccl_rules.h"

namespace tessera::cuda {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
constexpr absl::Duration kLong = absl::Seconds(1);  // for one collective

}  // namespace

absl::Status StatusOfCuda(cudaError_t error, const char* operation) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(operation, " failed: ", cudaGetErrorString(error)));
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

absl::Status Event::Record(cudaStream_t stream) {
  if (event_ == nullptr) {
    TESSERA_RETURN_IF_ERROR(
        StatusOfCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"));
  }
  return StatusOfCuda(cudaEventRecord(event_, stream), "recording an event");
}

absl::Status Event::Block(cudaStream_t stream) const {
  if (event_ == nullptr) return absl::OkStatus();
  return StatusOfCuda(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
}

bool Event::Passed() const {
  if (event_ == nullptr) return true;
  const bool passed = cudaEventQuery(event_) != cudaErrorNotReady;
  if (!passed) (void)cudaGetLastError();  // not an error to be found by others
  return passed;
}

NcclCalls::NcclCalls(int device, absl::Duration collective_timeout)
    : device_(device), timeout_(collective_timeout), watcher_([this] { Watch(); }) {}

NcclCalls::~NcclCalls() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (status_.ok()) Fail(absl::CancelledError("the world is closed"));
  }
  watcher_.join();
}

absl::Status NcclCalls::Settle(const std::string& operation, ncclComm_t communicator, absl::Time deadline,
                               absl::Duration pause) {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (!status_.ok()) return status_;
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
      if (asked != ncclSuccess || state != ncclInProgress) {
        return worker::StatusOfNccl(asked != ncclSuccess ? asked : state, operation,
                                    ncclGetLastError(communicator));
      }
    }
    if (absl::Now() > deadline)
      return absl::UnavailableError(absl::StrCat(operation, ": a rank did not come"));
    // NCCL has nothing to wait on.
    if (pause > absl::ZeroDuration()) {
      absl::SleepFor(pause);
    } else {
      std::this_thread::yield();
    }
  }
}

absl::Status NcclCalls::MakeCommunicator(const std::string& operation, ncclComm_t settles, ncclComm_t* made,
                                         absl::Duration timeout, const std::function<ncclResult_t()>& start) {
  const absl::Time deadline = absl::Now() + timeout;
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    TESSERA_RETURN_IF_ERROR(worker::StatusOfNccl(start(), operation, ncclGetLastError(settles)));
  }
  // The child is not there before its parent is out of progress.
  absl::Status settled;
  if (settles != nullptr) settled = Settle(operation, settles, deadline, absl::Milliseconds(1));
  if (settled.ok()) settled = Settle(operation, *made, deadline, absl::Milliseconds(1));
  absl::MutexLock lock(&mutex_);
  if (*made != nullptr && status_.ok()) communicators_.push_back(*made);
  if (!settled.ok() && status_.ok()) Fail(settled);
  return settled;
}

absl::Status NcclCalls::Start(const std::string& operation, ncclComm_t communicator, cudaStream_t stream,
                              const std::shared_ptr<Event>& done,
                              const std::function<ncclResult_t()>& start) {
  ncclResult_t result = ncclSuccess;
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    result = start();
    TESSERA_RETURN_IF_ERROR(worker::StatusOfNccl(result, operation, ncclGetLastError(communicator)));
  }
  if (result == ncclInProgress) {
    TESSERA_RETURN_IF_ERROR(Settle(operation, communicator, absl::Now() + timeout_, absl::ZeroDuration()));
  }
  TESSERA_RETURN_IF_ERROR(done->Record(stream));
  absl::MutexLock lock(&mutex_);
  flights_.push_back({&operation, absl::Now(), done});
  return absl::OkStatus();
}

absl::Status NcclCalls::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

std::string NcclCalls::Waiting() const {
  absl::MutexLock lock(&mutex_);
  for (const Flight& flight : flights_) {
    if (!flight.done->Passed()) return absl::Now() - flight.since > kLong ? *flight.operation : "";
  }
  return "";
}

void NcclCalls::Watch() {
  cudaSetDevice(device_);
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kLookInterval);
    if (stopping_ || !status_.ok()) continue;
    while (!flights_.empty() && flights_.front().done->Passed()) flights_.pop_front();
    if (absl::Status found = Look(); !found.ok()) Fail(std::move(found));
  }
}

absl::Status NcclCalls::Look() {
  for (ncclComm_t communicator : communicators_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    const std::string operation = flights_.empty() ? "NCCL" : *flights_.front().operation;
    TESSERA_RETURN_IF_ERROR(worker::StatusOfNccl(asked != ncclSuccess ? asked : state, operation,
                                                 ncclGetLastError(communicator)));
  }
  // Collectives of one stream end in their order, but there are two: the front may be done and another not.
  for (const Flight& flight : flights_) {
    if (absl::Now() - flight.since < timeout_) break;
    if (flight.done->Passed()) continue;
    return absl::UnavailableError(
        absl::StrCat(*flight.operation, " did not end within ", absl::FormatDuration(timeout_)));
  }
  return absl::OkStatus();
}

void NcclCalls::Fail(absl::Status status) {
  status_ = std::move(status);
  ncclGroupStart();
  for (auto it = communicators_.rbegin(); it != communicators_.rend(); ++it) ncclCommAbort(*it);
  ncclGroupEnd();
  communicators_.clear();
  flights_.clear();
}

}  // namespace tessera::cuda
