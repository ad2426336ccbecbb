#include "worker/control/scheduler_sink.h"

#include <utility>

#include "absl/time/clock.h"
#include "worker/profile/allocator_profile.h"

namespace tessera::worker {
namespace {

v1::WorkerPhase PhaseOf(TrainerPhase phase) {
  switch (phase) {
    case TrainerPhase::kLoading:
      return v1::WORKER_PHASE_LOADING;
    case TrainerPhase::kTraining:
      return v1::WORKER_PHASE_TRAINING;
    case TrainerPhase::kEvaluating:
      return v1::WORKER_PHASE_EVALUATING;
    case TrainerPhase::kCheckpointing:
      return v1::WORKER_PHASE_CHECKPOINTING;
    case TrainerPhase::kExporting:
      return v1::WORKER_PHASE_EXPORTING;
  }
  return v1::WORKER_PHASE_UNSPECIFIED;
}

constexpr absl::Duration kProfileInterval = absl::Seconds(1);

v1::DeviceProfile OwnDevice() {
  const AllocatorStatistics allocator = ProfileAllocator();
  v1::DeviceProfile device;
  device.set_name(allocator.device);
  device.set_total_bytes(allocator.device_total);
  device.set_other_bytes(allocator.other);
  device.set_reserved_bytes(allocator.reserved);
  device.set_allocated_bytes(allocator.allocated);
  device.set_free_bytes(allocator.free);
  device.set_largest_block_bytes(allocator.largest_block);
  device.set_fragmentation_ratio(allocator.fragmentation());
  return device;
}

}  // namespace

void SchedulerSink::OnMemoryShortage(int64_t step, const std::string& error) {
  v1::WorkerUp message;
  v1::MemoryShortage& shortage = *message.mutable_memory_shortage();
  shortage.set_step(step);
  *shortage.mutable_device() = OwnDevice();
  shortage.set_error(error);
  client_->Send(message);
}

void SchedulerSink::OnPhase(TrainerPhase phase, int64_t step) {
  v1::WorkerUp message;
  message.mutable_phase()->set_phase(PhaseOf(phase));
  message.mutable_phase()->set_step(step);
  client_->Send(message);
}

void SchedulerSink::OnStep(const StepReport& report) {
  v1::DeviceProfile device = last_.device();
  if (const absl::Time now = absl::Now(); now - profiled_ >= kProfileInterval) {
    device = OwnDevice();
    profiled_ = now;
  }
  last_.Clear();
  *last_.mutable_device() = std::move(device);
  last_.set_step(report.step);
  last_.set_loss(report.loss);
  last_.set_tokens(report.tokens);
  last_.set_step_seconds(report.step_seconds);
  last_.set_compute_seconds(report.compute_seconds);
  last_.set_sync_seconds(report.sync_seconds);
  last_.set_memory_used_bytes(report.memory_used_bytes);
  last_.set_memory_peak_bytes(report.memory_peak_bytes);
  last_.set_resident_bytes(report.resident_bytes);
  last_.set_traffic_bytes(report.traffic_bytes);
  last_.set_gradient_norm(report.gradient_norm);
  last_.set_learning_rate(report.learning_rate);
  last_.set_plan_generation(report.plan_generation);
  last_.set_plan_since(report.plan_since);
  last_.set_slowest_rank(report.slowest_rank);
  last_.set_gradient_kept_ratio(report.gradient_kept_ratio);
  v1::WorkerUp message;
  *message.mutable_progress() = last_;
  client_->Send(message);
}

void SchedulerSink::OnStatistics(int64_t step, int64_t generation,
                                 const std::vector<LayerStatistic>& layers) {
  v1::WorkerUp message;
  v1::LayerStatistics& out = *message.mutable_layer_statistics();
  out.set_step(step);
  out.set_plan_generation(generation);
  for (const LayerStatistic& layer : layers) {
    v1::LayerStatistic& one = *out.add_layers();
    one.set_parameter(layer.parameter);
    one.set_elements(layer.elements);
    one.set_second_moment(layer.second_moment);
    one.set_root_second_moment(layer.root_second_moment);
    one.set_squared_gradient(layer.squared_gradient);
    one.set_spike(layer.spike);
  }
  client_->Send(message);
}

// The newest progress once more, with the loss: everything in it still holds.
void SchedulerSink::OnEvaluation(int64_t step, double validation_loss, int64_t tokens) {
  v1::WorkerUp message;
  *message.mutable_progress() = last_;
  message.mutable_progress()->set_step(step);
  message.mutable_progress()->set_validation_loss(validation_loss);
  message.mutable_progress()->set_validation_tokens(tokens);
  client_->Send(message);
}

void SchedulerSink::OnResumed(int64_t step, const std::string& path,
                              const std::vector<std::string>& passed_over) {
  if (passed_over.empty()) return;  // nothing that the scheduler does not know
  v1::WorkerUp message;
  message.mutable_checkpoint()->set_step(step);
  message.mutable_checkpoint()->set_path(path);
  message.mutable_checkpoint()->mutable_passed_over()->Assign(passed_over.begin(), passed_over.end());
  client_->Send(message);
}

void SchedulerSink::OnAccuracy(int64_t step, double accuracy) {
  v1::WorkerUp message;
  *message.mutable_progress() = last_;
  message.mutable_progress()->set_step(step);
  message.mutable_progress()->set_validation_accuracy(accuracy);
  client_->Send(message);
}

void SchedulerSink::OnCheckpoint(int64_t step, const std::string& path) {
  v1::WorkerUp message;
  message.mutable_checkpoint()->set_step(step);
  message.mutable_checkpoint()->set_path(path);
  client_->Send(message);
}

}  // namespace tessera::worker
