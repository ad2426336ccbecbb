// This machine as the one node of a local service.
#pragma once

#include "tessera/v1/node.pb.h"

namespace tessera::services {

// Name, cores, total and available memory as the kernel and the control group say now;
// the smaller of the two where both do.
v1::NodeProfile ProfileLocalNode();

}  // namespace tessera::services
