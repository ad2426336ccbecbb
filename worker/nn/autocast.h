// Computation in bf16: products of matrices, convolutions and attention take and give bf16; sums over a
// residual stream, norms, rotations and losses stay in fp32, as do weights and their gradients (torch's
// autocast).
#pragma once

namespace tessera::worker {

// While it lives, on this thread. `on` false: fp32, also within one that is on.
class Autocast {
 public:
  explicit Autocast(bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  static bool Enabled();  // on this thread

 private:
  bool before_;
};

}  // namespace tessera::worker
