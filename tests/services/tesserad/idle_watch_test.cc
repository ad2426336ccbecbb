#include "services/tesserad/idle_watch.h"

#include "gtest/gtest.h"
#include "scheduler/store/memory_store.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

class NoObserver : public RequestObserver {
 public:
  void RequestDone(const std::string&, const std::string&, absl::StatusCode, absl::Duration) override {}
};

TEST(IdleWatch, AnUnfinishedJobOrARecentCallKeepsTheDaemon) {
  auto store = scheduler::MakeMemoryStore();
  NoObserver next;
  IdleWatch idle(store.get(), &next);
  const absl::Time later = absl::Now() + absl::Hours(1);
  EXPECT_TRUE(idle.IsIdle(later, absl::Minutes(10)));
  EXPECT_FALSE(idle.IsIdle(absl::Now(), absl::Minutes(10)));
  v1::TrainingJob job = SmallJob("tiny");
  job.set_namespace_("default");
  job.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
  scheduler::JobRecord record = *store->Create(job, "");
  EXPECT_FALSE(idle.IsIdle(later, absl::Minutes(10)));
  record.job.mutable_status()->set_state(v1::JOB_STATE_FAILED);
  ASSERT_OK(store->Update(record));
  EXPECT_TRUE(idle.IsIdle(later, absl::Minutes(10)));
}

}  // namespace
}  // namespace tessera::services
