// Every registered store keeps the contract of job_store.h.
#include "tests/scheduler/store/job_store_conformance.h"

namespace tessera::scheduler {
namespace {

INSTANTIATE_TEST_SUITE_P(All, JobStoreConformanceTest,
                         ::testing::ValuesIn(StoreKinds().begin(), StoreKinds().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::scheduler
