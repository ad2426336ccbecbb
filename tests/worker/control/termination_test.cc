#include "worker/control/termination.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace tessera::worker {
namespace {

TEST(TerminationDeathTest, TheLaunchersFirstSignalAfterAStopOrderDoesNotKill) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        TrainerSignals signals;
        InstallTerminationHandler(&signals);
        signals.stop = true;  // as the scheduler's order does
        std::raise(SIGTERM);
        std::_Exit(signals.stop ? 7 : 8);
      },
      testing::ExitedWithCode(7), testing::_);
}

TEST(TerminationDeathTest, TheFirstSignalAsksForAnEndTheSecondIsOne) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        TrainerSignals signals;
        InstallTerminationHandler(&signals);
        std::raise(SIGTERM);
        if (!signals.stop) std::_Exit(8);
        std::raise(SIGTERM);
        std::_Exit(9);
      },
      testing::KilledBySignal(SIGTERM), testing::_);
}

}  // namespace
}  // namespace tessera::worker
