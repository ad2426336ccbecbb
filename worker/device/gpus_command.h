#pragma once

namespace tessera::worker {

int RunGpus(int argc, char** argv);

}  // namespace tessera::worker
