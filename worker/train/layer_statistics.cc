#include "worker/train/layer_statistics.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace tessera::worker {
namespace {

// Of a piece, what this rank keeps: all, or what is in its shard.
int64_t OwnElements(const GroupState& state, const GroupPiece& piece) {
  return std::max<int64_t>(
      0, std::min(piece.offset + piece.elements, state.end) - std::max(piece.offset, state.begin));
}

at::Tensor OwnPart(const at::Tensor& flat, const GroupState& state, const GroupPiece& piece) {
  return flat.narrow(0, std::max(piece.offset, state.begin) - state.begin, OwnElements(state, piece));
}

}  // namespace

void LayerStatistics::Note(const GradientReducer& reducer) {
  const at::NoGradGuard no_grad;
  if (series_.empty()) {
    for (size_t position = 0; position < store_->held().size(); ++position) {
      const GroupState& state = store_->held()[position];
      const bool sharded = store_->options().sharded;
      if (!sharded && store_->groups()[state.group].owner() != store_->rank()) continue;
      for (size_t piece = 0; piece < state.pieces.size(); ++piece) {
        if (OwnElements(state, state.pieces[piece]) == 0) continue;
        series_.push_back({static_cast<int>(position), piece, {}});
      }
    }
  }
  for (Series& series : series_) {
    const at::Tensor sum = reducer.SumOfPiece(series.position, static_cast<int>(series.piece));
    const double divisor = reducer.divisor(series.position);
    series.squared.push_back(at::dot(sum, sum).item<double>() / (divisor * divisor));
    if (series.squared.size() > kWindow) series.squared.pop_front();
  }
}

double LayerStatistics::RootSecondMoment(const Series& series) const {
  const auto& names = store_->options().moments;
  const auto found = std::find(names.begin(), names.end(), "exp_avg_sq");
  const GroupState& state = store_->held()[series.position];
  const GroupPiece& piece = state.pieces[series.piece];
  const int64_t elements = OwnElements(state, piece);
  if (found == names.end()) return std::sqrt(series.squared.back() * static_cast<double>(elements));
  return OwnPart(state.moments[found - names.begin()], state, piece).sqrt().sum(at::kDouble).item<double>();
}

double LayerStatistics::Drift() const {
  const at::NoGradGuard no_grad;
  if (measured_.size() != series_.size()) return 0;
  std::vector<double> now;
  for (const Series& series : series_) now.push_back(RootSecondMoment(series));
  const double sum = std::accumulate(now.begin(), now.end(), 0.0);
  const double before = std::accumulate(measured_.begin(), measured_.end(), 0.0);
  double drift = 0;
  if (sum <= 0 || before <= 0) return 0;
  for (size_t i = 0; i < now.size(); ++i) drift += std::abs(now[i] / sum - measured_[i] / before) / 2;
  return drift;
}

std::vector<LayerStatistic> LayerStatistics::Measure() {
  const at::NoGradGuard no_grad;
  const auto& names = store_->options().moments;
  const auto found = std::find(names.begin(), names.end(), "exp_avg_sq");
  std::map<int, LayerStatistic> layers;
  measured_.clear();
  for (const Series& series : series_) {
    const GroupState& state = store_->held()[series.position];
    const GroupPiece& piece = state.pieces[series.piece];
    LayerStatistic& layer = layers[piece.parameter];
    layer.parameter = piece.parameter;
    layer.elements += OwnElements(state, piece);
    layer.squared_gradient += series.squared.back();
    measured_.push_back(RootSecondMoment(series));
    layer.root_second_moment += measured_.back();
    if (found != names.end()) {
      const at::Tensor v = OwnPart(state.moments[found - names.begin()], state, piece);
      layer.second_moment += v.sum(at::kDouble).item<double>();
    }
    std::vector<double> sorted(series.squared.begin(), series.squared.end());
    std::sort(sorted.begin(), sorted.end());
    const double median = sorted[sorted.size() / 2];
    if (median > 0) layer.spike = std::max(layer.spike, std::sqrt(sorted.back() / median));
  }
  std::vector<LayerStatistic> result;
  for (const auto& [parameter, layer] : layers) result.push_back(layer);
  return result;
}

}  // namespace tessera::worker
