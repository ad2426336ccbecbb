// ModelShape both ways.
#include <cmath>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/wire/plan_wire.h"

namespace tessera::wire {
namespace {

absl::StatusOr<plan::Axis> AxisFrom(int32_t number, const std::string& field) {
  if (number < static_cast<int>(plan::Axis::kNone) || number > static_cast<int>(plan::Axis::kChannel)) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": no axis has the number ", number));
  }
  return static_cast<plan::Axis>(number);
}

absl::StatusOr<plan::Parameter> ParameterFrom(const v1::ParameterShape& message, int blocks, int index) {
  const std::string field = absl::StrCat("parameters[", index, "] (", message.name(), ")");
  plan::Parameter parameter{.name = message.name(), .block = message.block(), .decay = message.decay()};
  if (parameter.block < plan::kNoBlock || parameter.block >= blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".block: ", parameter.block, "; must be from -1 to ", blocks - 1));
  }
  for (int64_t dim : message.dims()) {
    if (dim < 1)
      return absl::InvalidArgumentError(absl::StrCat(field, ".dims: ", dim, "; must be at least 1"));
    parameter.dims.push_back(dim);
  }
  for (int32_t number : message.axes()) {
    TESSERA_ASSIGN_OR_RETURN(const plan::Axis axis, AxisFrom(number, field + ".axes"));
    parameter.axes.push_back(axis);
  }
  if (!parameter.axes.empty() && parameter.axes.size() != parameter.dims.size()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".axes: has ", parameter.axes.size(),
                                                   " entries for ", parameter.dims.size(),
                                                   " dimensions; must have as many, or none"));
  }
  return parameter;
}

absl::StatusOr<plan::Block> BlockFrom(const v1::BlockShape& message, int kinds, int index) {
  const std::string field = absl::StrCat("blocks[", index, "] (", message.name(), ")");
  plan::Block block{.name = message.name(),
                    .maskable = message.maskable(),
                    .flops_per_token = message.flops_per_token(),
                    .kind = message.kind()};
  if (!(block.flops_per_token >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".flops_per_token: ", block.flops_per_token, "; must be 0 or more"));
  }
  if (block.kind < 0 || (kinds > 0 && block.kind >= kinds)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".kind: ", block.kind, "; the activation profile has ", kinds, " kinds"));
  }
  for (const v1::AxisShape& axis : message.axes()) {
    TESSERA_ASSIGN_OR_RETURN(const plan::Axis name, AxisFrom(axis.axis(), field + ".axes"));
    block.axes.push_back({.axis = name, .chunks = axis.chunks()});
  }
  return block;
}

v1::PassBytes ToMessage(const plan::PassBytes& bytes) {
  v1::PassBytes message;
  message.set_saved_bytes(bytes.saved);
  message.set_forward_transient_bytes(bytes.forward_transient);
  message.set_backward_transient_bytes(bytes.backward_transient);
  return message;
}

plan::PassBytes BytesFrom(const v1::PassBytes& message) {
  return {message.saved_bytes(), message.forward_transient_bytes(), message.backward_transient_bytes()};
}

absl::Status CheckMeasured(const std::string& field, std::initializer_list<int64_t> bytes,
                           std::initializer_list<double> seconds) {
  for (int64_t number : bytes) {
    if (number < 0)
      return absl::InvalidArgumentError(absl::StrCat(field, ": has ", number, " bytes; must be 0 or more"));
  }
  for (double number : seconds) {
    if (!(number >= 0) || std::isinf(number))
      return absl::InvalidArgumentError(absl::StrCat(field, ": has ", number, "; must be 0 or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckMeasured(const std::string& field, const plan::PassBytes& bytes) {
  return CheckMeasured(field, {bytes.saved, bytes.forward_transient, bytes.backward_transient}, {});
}

absl::StatusOr<plan::BlockActivation> KindFrom(const v1::BlockActivation& message) {
  plan::BlockActivation kind{
      .saved = message.saved_bytes(),
      .forward_transient = message.forward_transient_bytes(),
      .backward_transient = message.backward_transient_bytes(),
      .seconds_per_token = message.seconds_per_token(),
      .forward_seconds_per_token = message.forward_seconds_per_token(),
      .output = message.output_bytes(),
      .frozen = {message.frozen_saved_bytes(), message.frozen_forward_transient_bytes(),
                 message.frozen_backward_transient_bytes()},
      .checkpointed = BytesFrom(message.checkpointed()),
      .frozen_checkpointed = BytesFrom(message.frozen_checkpointed()),
      .shortcut = BytesFrom(message.shortcut())};
  const std::string field = "activations.kinds";
  TESSERA_RETURN_IF_ERROR(
      CheckMeasured(field, {kind.saved, kind.forward_transient, kind.backward_transient, kind.output},
                    {kind.seconds_per_token, kind.forward_seconds_per_token}));
  for (const plan::PassBytes& bytes :
       {kind.frozen, kind.checkpointed, kind.frozen_checkpointed, kind.shortcut}) {
    TESSERA_RETURN_IF_ERROR(CheckMeasured(field, bytes));
  }
  for (const v1::AxisActivation& part : message.axes()) {
    TESSERA_ASSIGN_OR_RETURN(const plan::Axis axis, AxisFrom(part.axis(), "activations.kinds.axes"));
    kind.axes.push_back({.axis = axis,
                         .saved = part.saved_bytes(),
                         .forward_transient = part.forward_transient_bytes(),
                         .backward_transient = part.backward_transient_bytes(),
                         .checkpointed = BytesFrom(part.checkpointed())});
    TESSERA_RETURN_IF_ERROR(CheckMeasured(
        field + ".axes",
        {part.saved_bytes(), part.forward_transient_bytes(), part.backward_transient_bytes()}, {}));
    TESSERA_RETURN_IF_ERROR(CheckMeasured(field + ".axes", kind.axes.back().checkpointed));
  }
  return kind;
}

v1::BlockActivation ToMessage(const plan::BlockActivation& kind) {
  v1::BlockActivation out;
  out.set_saved_bytes(kind.saved);
  out.set_forward_transient_bytes(kind.forward_transient);
  out.set_backward_transient_bytes(kind.backward_transient);
  out.set_seconds_per_token(kind.seconds_per_token);
  out.set_forward_seconds_per_token(kind.forward_seconds_per_token);
  out.set_output_bytes(kind.output);
  out.set_frozen_saved_bytes(kind.frozen.saved);
  out.set_frozen_forward_transient_bytes(kind.frozen.forward_transient);
  out.set_frozen_backward_transient_bytes(kind.frozen.backward_transient);
  *out.mutable_checkpointed() = ToMessage(kind.checkpointed);
  *out.mutable_frozen_checkpointed() = ToMessage(kind.frozen_checkpointed);
  *out.mutable_shortcut() = ToMessage(kind.shortcut);
  for (const plan::AxisActivation& axis : kind.axes) {
    v1::AxisActivation& part = *out.add_axes();
    part.set_axis(static_cast<int32_t>(axis.axis));
    part.set_saved_bytes(axis.saved);
    part.set_forward_transient_bytes(axis.forward_transient);
    part.set_backward_transient_bytes(axis.backward_transient);
    *part.mutable_checkpointed() = ToMessage(axis.checkpointed);
  }
  return out;
}

}  // namespace

v1::ModelShape ToMessage(const plan::ModelShape& shape) {
  v1::ModelShape message;
  message.set_model(shape.model);
  message.set_vocab_size(shape.vocab_size);
  message.set_base_flops_per_token(shape.base_flops_per_token);
  message.set_training_samples(shape.training_samples);
  for (const plan::Parameter& parameter : shape.parameters) {
    v1::ParameterShape& out = *message.add_parameters();
    out.set_name(parameter.name);
    out.mutable_dims()->Add(parameter.dims.begin(), parameter.dims.end());
    out.set_block(parameter.block);
    for (plan::Axis axis : parameter.axes) out.add_axes(static_cast<int32_t>(axis));
    out.set_decay(parameter.decay);
  }
  for (const plan::Block& block : shape.blocks) {
    v1::BlockShape& out = *message.add_blocks();
    out.set_name(block.name);
    out.set_maskable(block.maskable);
    out.set_flops_per_token(block.flops_per_token);
    out.set_kind(block.kind);
    for (const plan::BlockAxis& axis : block.axes) {
      v1::AxisShape& axis_out = *out.add_axes();
      axis_out.set_axis(static_cast<int32_t>(axis.axis));
      axis_out.set_chunks(axis.chunks);
    }
  }
  v1::ActivationProfile& profile = *message.mutable_activations();
  profile.set_batch(shape.activations.batch);
  profile.set_sequence_length(shape.activations.sequence_length);
  profile.set_base_saved_bytes(shape.activations.base_saved);
  profile.set_head_transient_bytes(shape.activations.head_transient);
  profile.set_end_peak_bytes(shape.activations.end_peak);
  profile.set_head_seconds_per_token(shape.activations.head_seconds_per_token);
  for (const plan::BlockActivation& kind : shape.activations.kinds) *profile.add_kinds() = ToMessage(kind);
  message.mutable_process()->set_base_bytes(shape.process.base);
  message.mutable_process()->set_slack_ratio(shape.process.slack);
  message.mutable_process()->set_communicator_bytes(shape.process.communicator);
  return message;
}

absl::StatusOr<plan::ModelShape> FromMessage(const v1::ModelShape& message) {
  plan::ModelShape shape{.model = message.model(),
                         .vocab_size = message.vocab_size(),
                         .base_flops_per_token = message.base_flops_per_token(),
                         .process = {message.process().base_bytes(), message.process().slack_ratio(),
                                     message.process().communicator_bytes()},
                         .training_samples = message.training_samples()};
  for (int p = 0; p < message.parameters_size(); ++p) {
    TESSERA_ASSIGN_OR_RETURN(plan::Parameter parameter,
                             ParameterFrom(message.parameters(p), message.blocks_size(), p));
    shape.parameters.push_back(std::move(parameter));
  }
  const v1::ActivationProfile& profile = message.activations();
  for (int b = 0; b < message.blocks_size(); ++b) {
    TESSERA_ASSIGN_OR_RETURN(plan::Block block, BlockFrom(message.blocks(b), profile.kinds_size(), b));
    shape.blocks.push_back(std::move(block));
  }
  shape.activations = {.batch = profile.batch(),
                       .sequence_length = profile.sequence_length(),
                       .base_saved = profile.base_saved_bytes(),
                       .head_transient = profile.head_transient_bytes(),
                       .end_peak = profile.end_peak_bytes(),
                       .head_seconds_per_token = profile.head_seconds_per_token()};
  TESSERA_RETURN_IF_ERROR(
      CheckMeasured("activations",
                    {profile.batch(), profile.sequence_length(), profile.base_saved_bytes(),
                     profile.head_transient_bytes(), profile.end_peak_bytes()},
                    {profile.head_seconds_per_token()}));
  TESSERA_RETURN_IF_ERROR(
      CheckMeasured("process", {shape.process.base, shape.process.communicator}, {shape.process.slack}));
  for (const v1::BlockActivation& kind : profile.kinds()) {
    TESSERA_ASSIGN_OR_RETURN(plan::BlockActivation in, KindFrom(kind));
    shape.activations.kinds.push_back(std::move(in));
  }
  return shape;
}

}  // namespace tessera::wire
