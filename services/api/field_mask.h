// Read and update masks: paths of fields in either spelling, `status` for all below it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/field_mask.pb.h"
#include "google/protobuf/message.h"

namespace tessera::services {

// Brings `mask`'s paths into the spelling of the proto. InvalidArgument with a violation of `parameter` for
// each path that is no field of `type`; "*" stands for all and empties the mask.
absl::Status ResolveMask(const google::protobuf::Descriptor* type, const std::string& parameter,
                         google::protobuf::FieldMask* mask);

// Clears what a resolved mask does not name. An empty mask names everything.
void ApplyReadMask(const google::protobuf::FieldMask& mask, google::protobuf::Message* message);

}  // namespace tessera::services
