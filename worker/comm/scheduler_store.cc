#include "worker/comm/scheduler_store.h"

namespace tessera::worker {
namespace {

using Bytes = std::vector<uint8_t>;

std::string ToString(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
Bytes ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) C10_THROW_ERROR(DistStoreError, std::string(status.message()));
}
template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

class SchedulerStore final : public c10d::Store {
 public:
  SchedulerStore(RendezvousClient* client, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), client_(client) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<SchedulerStore>(client_, timeout_);
  }
  void set(const std::string& key, const Bytes& value) override {
    ThrowIfError(client_->Set(key, ToString(value)));
  }
  Bytes get(const std::string& key) override {
    return ToBytes(ValueOrThrow(client_->Get(key, absl::FromChrono(timeout_))));
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return ToBytes(ValueOrThrow(client_->CompareSet(key, ToString(expected), ToString(desired))));
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return ValueOrThrow(client_->Add(key, amount));
  }
  bool deleteKey(const std::string& key) override { return ValueOrThrow(client_->Delete(key)); }
  bool check(const std::vector<std::string>& keys) override { return ValueOrThrow(client_->Check(keys)); }
  int64_t getNumKeys() override { return ValueOrThrow(client_->Count()); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const absl::Time deadline = absl::Now() + absl::FromChrono(timeout);
    for (const auto& key : keys) ThrowIfError(client_->Get(key, deadline - absl::Now()).status());
  }

 private:
  RendezvousClient* client_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> MakeSchedulerStore(RendezvousClient* client, absl::Duration timeout) {
  return c10::make_intrusive<SchedulerStore>(client, absl::ToChronoMilliseconds(timeout));
}

}  // namespace tessera::worker
