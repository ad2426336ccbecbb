#include "worker/train/layer_statistics.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tessera::worker {

void LayerStatistics::Note(const GradientReducer& reducer) {
  const at::NoGradGuard no_grad;
  if (series_.empty()) {
    for (size_t position = 0; position < store_->held().size(); ++position) {
      const GroupState& state = store_->held()[position];
      if (store_->groups()[state.group].owner() != store_->rank()) continue;
      for (size_t piece = 0; piece < state.pieces.size(); ++piece) {
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

std::vector<LayerStatistic> LayerStatistics::Measure() const {
  const at::NoGradGuard no_grad;
  const auto& names = store_->options().moments;
  const auto found = std::find(names.begin(), names.end(), "exp_avg_sq");
  std::map<int, LayerStatistic> layers;
  for (const Series& series : series_) {
    if (series.squared.empty()) continue;
    const GroupState& state = store_->held()[series.position];
    const GroupPiece& piece = state.pieces[series.piece];
    LayerStatistic& layer = layers[piece.parameter];
    layer.parameter = piece.parameter;
    layer.elements += piece.elements;
    const double squared = series.squared.back();
    layer.squared_gradient += squared;
    if (found != names.end()) {
      const at::Tensor v = state.moments[found - names.begin()].narrow(0, piece.offset, piece.elements);
      layer.second_moment += v.sum(at::kDouble).item<double>();
      layer.root_second_moment += v.sqrt().sum(at::kDouble).item<double>();
    } else {
      layer.root_second_moment += std::sqrt(squared * static_cast<double>(piece.elements));
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
