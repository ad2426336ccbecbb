#include "scheduler/plan/loss_regression.h"

#include <algorithm>
#include <cmath>

namespace tessera::plan {
namespace {

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Of the mean, squared.
double SquaredError(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return sum / (count - 1) / count;
}

}  // namespace

void LossRegression::Note(int64_t step, double loss) {
  if (step <= last_) return;
  last_ = step;
  std::vector<double>& losses = changed_ >= 0 && step > changed_ ? after_ : before_;
  losses.push_back(loss);
  // A full window after the change waits for its verdict.
  if (&losses == &before_ && before_.size() > kWindow) before_.erase(before_.begin());
  if (&losses == &after_ && after_.size() > kWindow) after_.pop_back();
}

void LossRegression::Change(int64_t step) {
  before_.insert(before_.end(), after_.begin(), after_.end());
  if (before_.size() > kWindow) before_.erase(before_.begin(), before_.end() - kWindow);
  after_.clear();
  changed_ = step;
}

void LossRegression::Restart() {
  last_ = changed_ = -1;
  before_.clear();
  after_.clear();
}

std::optional<LossChange> LossRegression::Verdict() {
  if (changed_ < 0 || after_.size() < kWindow) return std::nullopt;
  std::optional<LossChange> change;
  if (before_.size() == kWindow) {
    change.emplace();
    change->before = Mean(before_);
    change->after = Mean(after_);
    change->bound = std::max(kWorse * std::abs(change->before),
                             3 * std::sqrt(SquaredError(before_) + SquaredError(after_)));
    if (!std::isfinite(change->after)) change->bound = -1, change->after = HUGE_VAL;
  }
  changed_ = -1;
  before_ = std::move(after_);
  after_.clear();
  return change;
}

}  // namespace tessera::plan
