#include "scheduler/controller/rendezvous_store.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::scheduler {
namespace {

using Request = v1::StoreRequest;

absl::Status NoSpace(const std::pair<std::string, int>& id) {
  return absl::AbortedError(absl::StrCat("the rendezvous of epoch ", id.second, " is over"));
}

bool NeedsKey(Request::Operation operation) { return operation != Request::OPERATION_COUNT; }

}  // namespace

void RendezvousStore::Open(const std::string& job_uid, int epoch) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(
      spaces_, [&](const auto& entry) { return entry.first.first == job_uid && entry.first.second < epoch; });
  spaces_.try_emplace({job_uid, epoch});
}

void RendezvousStore::Drop(const std::string& job_uid) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(spaces_, [&](const auto& entry) { return entry.first.first == job_uid; });
}

void RendezvousStore::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

RendezvousStore::Space* RendezvousStore::Find(const SpaceId& id) {
  auto it = spaces_.find(id);
  return it == spaces_.end() ? nullptr : &it->second;
}

absl::Status RendezvousStore::Put(Space& space, const std::string& key, const std::string& value) {
  auto it = space.values.find(key);
  const size_t before = it == space.values.end() ? 0 : key.size() + it->second.size();
  const size_t after = space.bytes - before + key.size() + value.size();
  if (after > kMaxBytes || (it == space.values.end() && space.values.size() >= kMaxKeys)) {
    return absl::ResourceExhaustedError("the rendezvous store of this job is full");
  }
  space.values[key] = value;
  space.bytes = after;
  return absl::OkStatus();
}

absl::StatusOr<v1::StoreResponse> RendezvousStore::Get(const SpaceId& id, const Request& request,
                                                       absl::Time deadline) {
  const std::string* missing = nullptr;
  const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Space* space = Find(id);
    if (closed_ || space == nullptr) return true;
    for (const std::string& key : request.keys()) {
      if (!space->values.contains(key)) {
        missing = &key;
        return false;
      }
    }
    return true;
  };
  const bool came = mutex_.AwaitWithDeadline(absl::Condition(&ready), deadline);
  if (closed_) return absl::UnavailableError("the scheduler stops");
  Space* space = Find(id);
  if (space == nullptr) return NoSpace(id);
  if (!came) return absl::DeadlineExceededError(absl::StrCat("rendezvous key '", *missing, "' did not come"));
  v1::StoreResponse response;
  for (const std::string& key : request.keys()) response.add_values(space->values[key]);
  return response;
}

absl::StatusOr<v1::StoreResponse> RendezvousStore::Apply(const Request& request, absl::Time deadline) {
  if (NeedsKey(request.operation()) && request.keys().empty()) {
    return absl::InvalidArgumentError("keys: a rendezvous operation needs one");
  }
  absl::MutexLock lock(&mutex_);
  const SpaceId id{request.job_uid(), request.epoch()};
  Space* space = Find(id);
  if (space == nullptr) return NoSpace(id);
  const std::string key = request.keys().empty() ? "" : request.keys(0);
  const auto it = space->values.find(key);
  v1::StoreResponse response;
  switch (request.operation()) {
    case Request::OPERATION_SET:
      TESSERA_RETURN_IF_ERROR(Put(*space, key, request.value()));
      return response;
    case Request::OPERATION_GET:
      return Get(id, request, deadline);
    case Request::OPERATION_ADD: {
      int64_t number = 0;
      if (it != space->values.end() && !absl::SimpleAtoi(it->second, &number)) {
        return absl::InvalidArgumentError(absl::StrCat("rendezvous key '", key, "' holds no number"));
      }
      number += request.amount();
      TESSERA_RETURN_IF_ERROR(Put(*space, key, absl::StrCat(number)));
      response.set_number(number);
      return response;
    }
    case Request::OPERATION_CHECK: {
      bool all = true;
      for (const std::string& wanted : request.keys()) all = all && space->values.contains(wanted);
      response.set_number(all ? 1 : 0);
      return response;
    }
    case Request::OPERATION_DELETE:
      response.set_number(it == space->values.end() ? 0 : 1);
      if (it != space->values.end()) {
        space->bytes -= it->first.size() + it->second.size();
        space->values.erase(it);
      }
      return response;
    case Request::OPERATION_COMPARE_SET: {
      const bool there = it != space->values.end();
      if (there ? it->second == request.expected() : request.expected().empty()) {
        TESSERA_RETURN_IF_ERROR(Put(*space, key, request.value()));
        response.add_values(request.value());
      } else {
        response.add_values(there ? it->second : request.expected());
      }
      return response;
    }
    case Request::OPERATION_COUNT:
      response.set_number(static_cast<int64_t>(space->values.size()));
      return response;
    default:
      return absl::InvalidArgumentError("operation: unknown");
  }
}

}  // namespace tessera::scheduler
