// This machine as the one node of a local service.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/v1/node.pb.h"

namespace tessera::services {

// Name, cores, total and available memory as the kernel and the control group say now;
// the smaller of the two where both do.
v1::NodeProfile ProfileLocalNode();

// The same node's available memory alone; -1: unknown.
int64_t AvailableBytes();

// What jobs may be given of `total_bytes`: a tenth, but at least 512 MB (of a small machine at most
// half), is left to the system, the service and page tables. 0 stays 0, unknown.
int64_t PlannableBytes(int64_t total_bytes);

// The smallest memory limit that applies to this process, and what counts against it, by cgroup v2 or
// v1, its own group and those above. 0: none. Files of `self` and below `root` are read.
struct CgroupMemory {
  int64_t limit = 0;
  int64_t used = 0;  // but for what the kernel keeps of files and gives back when asked
};
CgroupMemory ReadCgroupMemory(const std::string& self = "/proc/self/cgroup",
                              const std::string& root = "/sys/fs/cgroup");

}  // namespace tessera::services
