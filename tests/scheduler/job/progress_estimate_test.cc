#include "scheduler/job/progress_estimate.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tessera::job {
namespace {

constexpr int64_t kSteps = 2000;

// When each step of a run ends, in seconds; `pause(step)` comes after it.
template <typename Seconds, typename Pause>
std::vector<double> Ends(Seconds seconds, Pause pause) {
  std::vector<double> ends;
  double now = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    now += seconds(step);
    ends.push_back(now);
    now += pause(step);
  }
  return ends;
}

// The largest error of the predicted end between step `from` and the last, as a share of the whole run. Of
// the time that is left it can't be: shortly before the end one more evaluation is most of it.
double WorstError(const std::vector<double>& ends, int64_t from, double report_seconds) {
  ProgressEstimate estimate;
  double worst = 0;
  double reported = -1;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double now = ends[static_cast<size_t>(step - 1)];
    if (now - reported < report_seconds) continue;
    reported = now;
    estimate.Note(step, absl::UnixEpoch() + absl::Seconds(now));
    if (step < from) continue;
    const double left = absl::ToDoubleSeconds(estimate.Left(kSteps).value());
    worst = std::max(worst, std::abs(now + left - ends.back()) / ends.back());
  }
  return worst;
}

TEST(ProgressEstimate, ForeseesTheEndWithinATenthAfterAFifthOfARunThatEvaluatesAndWritesCheckpoints) {
  const auto jitter = [](int64_t step) {
    return 0.1 * (1 + 0.3 * std::sin(static_cast<double>(step * 7919)));
  };
  const auto pause = [](int64_t step) { return (step % 100 == 0 ? 3.0 : 0) + (step % 250 == 0 ? 5.0 : 0); };
  EXPECT_LT(WorstError(Ends(jitter, pause), kSteps / 5, 0), 0.1);
  EXPECT_LT(WorstError(Ends(jitter, pause), kSteps / 5, 1), 0.1);  // reports come once a second
}

TEST(ProgressEstimate, AFirstStepThatTakesLongCountsNothing) {
  const auto seconds = [](int64_t step) { return step == 1 ? 60.0 : 0.05; };
  EXPECT_LT(WorstError(Ends(seconds, [](int64_t) { return 0.0; }), 25, 0), 0.1);
}

TEST(ProgressEstimate, FollowsARunThatBecomesSlower) {
  const auto seconds = [](int64_t step) { return step < kSteps / 4 ? 0.1 : 0.2; };
  EXPECT_LT(WorstError(Ends(seconds, [](int64_t) { return 0.0; }), kSteps / 2, 0), 0.1);
}

TEST(ProgressEstimate, SaysNothingBeforeItKnows) {
  ProgressEstimate estimate;
  EXPECT_FALSE(estimate.Left(10).has_value());
  estimate.Note(3, absl::UnixEpoch());
  EXPECT_FALSE(estimate.Left(10).has_value());
  estimate.Note(2, absl::UnixEpoch() + absl::Seconds(5));
  EXPECT_FALSE(estimate.Left(10).has_value());
  estimate.Note(5, absl::UnixEpoch() + absl::Seconds(6));
  EXPECT_EQ(estimate.Left(10), absl::Seconds(15));
  EXPECT_EQ(estimate.Left(4), absl::ZeroDuration());
}

}  // namespace
}  // namespace tessera::job
