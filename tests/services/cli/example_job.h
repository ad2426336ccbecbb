// A job in the middle of its run, for rendering tests.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "services/cli/table.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::cli {

inline constexpr Style kUnicode = {.color = false, .unicode = true};
inline constexpr Style kAscii = {.color = false, .unicode = false};
inline constexpr Style kColor = {.color = true, .unicode = true};
inline constexpr int64_t kMiB = 1 << 20;

inline std::string Text(const std::vector<std::string>& lines) { return absl::StrJoin(lines, "\n") + "\n"; }

inline v1::TrainingJob ExampleJob() {
  v1::TrainingJob job;
  job.set_name("quickstart");
  job.set_namespace_("default");
  auto* status = job.mutable_status();
  status->set_state(v1::JOB_STATE_RUNNING);
  status->set_plan_generation(1);
  status->set_step(135);
  status->set_total_steps(300);
  status->set_tokens(552960);
  status->set_loss(2.1342);
  status->set_validation_loss(2.2011);
  status->set_initial_validation_loss(5.5512);
  status->set_tokens_per_second(12345);
  status->set_step_seconds(0.33);
  status->set_learning_rate(3e-4);
  status->mutable_eta()->set_seconds(55);
  status->mutable_start_time()->set_seconds(1000);
  for (int rank = 0; rank < 2; ++rank) {
    auto* worker = status->add_workers();
    worker->set_rank(rank);
    worker->set_state("Training");
    worker->set_step(135);
    worker->set_coverage(0.5);
    worker->set_memory_used_bytes(120 * kMiB);
    worker->set_memory_peak_bytes(181 * kMiB);
    worker->set_memory_predicted_bytes(180 * kMiB);
    worker->set_resident_bytes(400 * kMiB);
    worker->set_traffic_bytes_per_step((12 + rank) * kMiB);
    worker->set_traffic_predicted_bytes_per_step(12 * kMiB);
  }
  return job;
}

// Two workers, four units: both ends always on, one of the inner units each.
inline v1::Plan ExamplePlan() {
  v1::Plan plan;
  plan.set_generation(1);
  plan.set_reason("submitted");
  auto* inputs = plan.mutable_inputs();
  inputs->set_workers(2);
  inputs->set_granularity(v1::GRANULARITY_BLOCK);
  inputs->set_masking(v1::MASKING_FORWARD);
  inputs->set_scheme(v1::MASK_SCHEME_CYCLIC);
  inputs->set_coverage(0.5);
  inputs->set_seed(1);
  for (int u = 0; u < 4; ++u) {
    auto* unit = plan.add_units();
    const bool end = u == 0 || u == 3;
    unit->set_always_on(end);
    if (end || u == 1) unit->add_holders(0);
    if (end || u == 2) unit->add_holders(1);
  }
  for (int rank = 0; rank < 2; ++rank) {
    auto* worker = plan.add_workers();
    worker->set_rank(rank);
    worker->set_coverage(0.5);
    worker->set_parameter_share(0.75);
    auto* memory = worker->mutable_memory();
    memory->set_parameters(24 * kMiB);
    memory->set_gradients(24 * kMiB);
    memory->set_optimizer(48 * kMiB);
    memory->set_activations(80 * kMiB);
    memory->set_transient(4 * kMiB);
    memory->set_peak(180 * kMiB);
    worker->set_traffic_bytes_per_step(12 * kMiB);
  }
  for (const char* name : {"ddp", "fsdp"}) {
    auto* alternative = plan.add_alternatives();
    alternative->set_name(name);
    alternative->set_memory_bytes((name[0] == 'd' ? 300 : 220) * kMiB);
    alternative->set_traffic_bytes_per_step((name[0] == 'd' ? 24 : 36) * kMiB);
  }
  plan.set_total_elements(8000000);
  plan.set_maskable_elements(6000000);
  plan.set_spectral_gap(0.25);
  plan.set_holder_sets(3);
  plan.set_total_steps(300);
  plan.set_fit("fits");
  return plan;
}

}  // namespace tessera::cli
