// What a connection among ranks takes of a process's memory.
#pragma once

#include <cstdint>

namespace tessera::worker {

// Resident bytes of one Gloo communicator in a process of this program: its threads, buffers and sockets. Two
// ranks meet in this process for it. 0: it could not be measured.
int64_t MeasureCommunicator();

}  // namespace tessera::worker
