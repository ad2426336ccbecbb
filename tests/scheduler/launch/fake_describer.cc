#include "tests/scheduler/launch/fake_describer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::scheduler {
namespace {

void AddParameter(v1::ModelShape& shape, const std::string& name, int block, int64_t rows, int64_t columns) {
  auto* parameter = shape.add_parameters();
  parameter->set_name(name);
  parameter->add_dims(rows);
  parameter->add_dims(columns);
  parameter->set_block(block);
  parameter->set_decay(true);
}

}  // namespace

v1::ModelShape StackShape(int blocks, int64_t width, int64_t batch, int64_t sequence_length) {
  v1::ModelShape shape;
  shape.set_model("stack");
  shape.set_vocab_size(256);
  AddParameter(shape, "embedding.weight", -1, 256, width);
  for (int b = 0; b < blocks; ++b) {
    auto* block = shape.add_blocks();
    block->set_name(absl::StrCat("layers.", b));
    block->set_maskable(true);
    block->set_flops_per_token(2.0 * static_cast<double>(width * width));
    AddParameter(shape, absl::StrCat("layers.", b, ".weight"), b, width, width);
  }
  AddParameter(shape, "head.weight", -1, 256, width);
  shape.set_base_flops_per_token(2.0 * 256 * static_cast<double>(width));
  auto* activations = shape.mutable_activations();
  activations->set_batch(batch);
  activations->set_sequence_length(sequence_length);
  auto* kind = activations->add_kinds();
  kind->set_saved_bytes(4 * batch * sequence_length * width);
  kind->set_forward_transient_bytes(1024);
  kind->set_backward_transient_bytes(2048);
  activations->set_base_saved_bytes(4 * batch * sequence_length * width);
  activations->set_head_transient_bytes(4096);
  return shape;
}

absl::StatusOr<v1::ModelShape> FakeDescriber::Describe(const v1::TrainingJobSpec& spec) {
  absl::MutexLock lock(&mutex_);
  ++calls_;
  if (!status_.ok()) return status_;
  v1::ModelShape shape = StackShape(8, 64, std::max(1, spec.workers().batch()),
                                    std::max<int64_t>(1, spec.data().sequence_length()));
  shape.mutable_activations()->set_head_seconds_per_token(seconds_per_token_);
  v1::BlockActivation& kind = *shape.mutable_activations()->mutable_kinds(0);
  kind.set_seconds_per_token(seconds_per_token_);
  kind.set_output_bytes(kind.saved_bytes());
  kind.set_saved_bytes(saved_outputs_ * kind.saved_bytes());
  return shape;
}

void FakeDescriber::SaveOutputs(int count) {
  absl::MutexLock lock(&mutex_);
  saved_outputs_ = count;
}

void FakeDescriber::MeasureTime(double seconds_per_token) {
  absl::MutexLock lock(&mutex_);
  seconds_per_token_ = seconds_per_token;
}

void FakeDescriber::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  status_ = status;
}

int FakeDescriber::calls() const {
  absl::MutexLock lock(&mutex_);
  return calls_;
}

}  // namespace tessera::scheduler
