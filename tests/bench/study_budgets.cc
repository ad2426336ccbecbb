#include "tests/bench/study_budgets.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "scheduler/plan/layer_budgets.h"

namespace tessera::worker {

struct StudyBudgets::Sink final : ReportSink {
  Sink(StudyBudgets* o, int r) : owner(o), rank(r) {}
  void OnStatistics(int64_t, int64_t, const std::vector<LayerStatistic>& layers) override {
    owner->Take(rank, layers);
  }
  StudyBudgets* owner;
  int rank;
};

StudyBudgets::StudyBudgets(const plan::ModelShape& shape, std::string how, double density, int ranks)
    : shape_(shape), how_(std::move(how)), density_(density), roots_(shape.parameters.size(), 0.0) {
  for (int rank = 0; rank < ranks; ++rank) {
    sinks_.push_back(std::make_unique<Sink>(this, rank));
    signals_.push_back(std::make_unique<TrainerSignals>());
  }
}

StudyBudgets::~StudyBudgets() = default;
ReportSink* StudyBudgets::sink(int rank) { return sinks_[rank].get(); }

void StudyBudgets::Watch(int rank, const UnitStore* store) {
  if (rank == 0) store_ = store;
}

std::vector<int64_t> StudyBudgets::BySize(const plan::ModelShape& shape, double density) {
  std::vector<plan::LayerDemand> layers;
  for (const auto& parameter : shape.parameters) {
    layers.push_back({.elements = parameter.elements(), .floor = parameter.dims.size() < 2 ? 1.0 : 0.0});
  }
  return plan::LayerBudgets(density, layers).value();
}

std::vector<int64_t> StudyBudgets::Divide(const std::vector<double>& roots) const {
  std::vector<plan::LayerDemand> layers;
  for (size_t p = 0; p < shape_.parameters.size(); ++p) {
    const bool whole = shape_.parameters[p].dims.size() < 2;
    layers.push_back({.elements = shape_.parameters[p].elements(),
                      .importance = how_ == "root_root" ? std::sqrt(roots[p]) : roots[p],
                      .floor = whole ? 1.0 : 0.25 * density_});
  }
  return plan::LayerBudgets(density_, layers).value();
}

std::vector<int64_t> StudyBudgets::AboveOneThreshold() const {
  std::vector<at::Tensor> moments(shape_.parameters.size());
  std::vector<at::Tensor> all;
  for (const GroupState& state : store_->held()) {
    for (const GroupPiece& piece : state.pieces) {
      moments[piece.parameter] = state.moments[1].narrow(0, piece.offset, piece.elements);
      all.push_back(moments[piece.parameter]);
    }
  }
  const at::Tensor flat = at::cat(all);
  const auto kept = static_cast<int64_t>(density_ * static_cast<double>(flat.numel()));
  const at::Tensor threshold = std::get<0>(at::kthvalue(flat, flat.numel() - kept));
  std::vector<double> above;
  for (const at::Tensor& moment : moments) above.push_back(at::sum(moment > threshold).item<double>());
  return Divide(above);
}

void StudyBudgets::Take(int rank, const std::vector<LayerStatistic>& layers) {
  const absl::MutexLock lock(&mutex_);
  for (const LayerStatistic& layer : layers) roots_[layer.parameter] += layer.root_second_moment;
  if (++reported_ < static_cast<int>(sinks_.size()) && how_ != "global") return;
  // One rank holds everything then, and must read its moments on its own thread.
  if (how_ == "global" && rank != 0) return;
  const std::vector<int64_t> kept = how_ == "global" ? AboveOneThreshold() : Divide(roots_);
  std::fill(roots_.begin(), roots_.end(), 0.0);
  reported_ = 0;
  ++published_;
  for (const auto& signals : signals_) {
    signals->budgets.Put(published_ + 1, kept);
    signals->plan_generation = published_ + 1;
  }
}

}  // namespace tessera::worker
