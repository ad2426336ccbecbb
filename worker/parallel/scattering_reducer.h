// Sums flat memory over the holders of each group and scatters the sums: each holder gets one section and
// adds it to what it has of the micro-steps before. The memory of a group exists only from the first to the
// last of its parameters in backward. What is in it, whole gradients or what is kept of them, is the
// subclass's affair.
#pragma once

#include <memory>
#include <vector>

#include "worker/parallel/gradient_reducer.h"

namespace tessera::worker {

class ScatteringReducer : public GradientReducer {
 public:
  // Also waits for the reductions before the block's: at most two groups' blocks are whole at a time.
  void LeaveBlock(int block) override;
  absl::Status EndMicroStep() override;

 protected:
  ScatteringReducer(UnitStore* store, World* world, const ReducerOptions& options)
      : GradientReducer(store, world), options_(options) {}
  // To be called for each position in turn, before anything else.
  void AddGroup(Communicator* holders) { groups_.emplace_back().holders = holders; }
  void OnBegin() override;
  // Of the group's sections one behind the other, zeros at first.
  at::Tensor& Whole(int position);
  // Elements of this rank's section, as large as the others'.
  virtual int64_t SectionElements(int position) const = 0;
  // Adds this micro-step's sum of the section, fp32 or bf16; to nothing after OnBegin of the first one.
  virtual void AddSum(int position, at::Tensor sum) = 0;
  // Puts what stands for it where no gradient came in this micro-step.
  virtual void FillIn(int position) {}

  const ReducerOptions options_;

 private:
  struct Group {
    Communicator* holders = nullptr;
    at::Tensor whole;  // [section * k]; undefined: nothing has come yet
    at::Tensor sum;    // [section], under way
    at::Tensor wire;   // what is sent, if it is not `whole`
    std::unique_ptr<Work> work;
    bool reduced = false;  // started in this micro-step
  };
  void Start(int position);
  void Complete(int position);

  std::vector<Group> groups_;  // by position in store->held()
  absl::Status status_;        // first failure
};

}  // namespace tessera::worker
