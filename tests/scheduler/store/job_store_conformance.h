// What every store has to keep of the contract of job_store.h. A test program links job_store_conformance.cc
// and instantiates this with its kinds of stores.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "scheduler/store/store_registry.h"

namespace tessera::scheduler {

// Tests are named by their parameter; its bytes differ from run to run.
inline void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

v1::TrainingJob Job(const std::string& ns, const std::string& name);

class JobStoreConformanceTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override;
  void TearDown() override;
  void Open();  // again, what was open being closed
  // "namespace/name" of all jobs, page by page.
  std::vector<std::string> Names(const std::string& ns, int page_size);

  std::filesystem::path folder_;
  std::unique_ptr<JobStore> store_;
};

}  // namespace tessera::scheduler
