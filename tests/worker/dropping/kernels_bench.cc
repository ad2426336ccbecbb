// Time of selecting, cutting and spreading out the elements of one tensor: nanoseconds of CPU time per
// element, the best of several rounds on one thread. Usage: dropping_kernels_bench [elements]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "scheduler/plan/dropping_cost.h"
#include "worker/dropping/cut.h"
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/sketch.h"

namespace tessera::worker {
namespace {

// Of this thread: waiting for a core says nothing.
double CpuNanoseconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double Nanoseconds(int64_t elements, const std::function<void()>& work) {
  constexpr int kRounds = 15;
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const double start = CpuNanoseconds();
    work();
    best = std::min(best, (CpuNanoseconds() - start) / static_cast<double>(elements));
  }
  return best;
}

void Run(int64_t elements) {
  const int64_t kept = elements * 3 / 10;
  std::vector<float> gradient(elements), moment(elements), residual(elements), ring(kept), out(elements);
  std::vector<uint16_t> half(elements);
  for (int64_t i = 0; i < elements; ++i) {
    gradient[i] = static_cast<float>(i * 7919 % 1000) / 1000;
    moment[i] = gradient[i] * gradient[i];
    residual[i] = gradient[i] - 0.5f;
  }
  std::printf("%lld elements, 0.3 kept; nanoseconds per element\n", static_cast<long long>(elements));
  const auto row = [&](const char* what, const std::function<void()>& work) {
    std::printf("%-28s %7.3f\n", what, Nanoseconds(elements, work));
  };
  const Selection rotation = Selection::Make(elements, kept, 12345);
  std::vector<uint64_t> words(rotation.words());
  row("read rotation", [&] { rotation.Read(0, absl::MakeSpan(words)); });
  row("cut", [&] { CutGradient(rotation, gradient.data(), true, {}, ring.data()); });
  row("cut, fp32 residual",
      [&] { CutGradient(rotation, gradient.data(), true, {.fp32 = residual.data()}, ring.data()); });
  row("cut, bf16 residual",
      [&] { CutGradient(rotation, gradient.data(), true, {.bf16 = half.data()}, ring.data()); });
  row("copy of the gradient", [&] { std::copy(gradient.begin(), gradient.end(), out.begin()); });
  row("spread", [&] { KeptReader(&rotation, ring.data()).Spread(elements, out.data()); });
  row("spread, a part at a time", [&] {  // as for the optimizer: the scratch stays in the cache
    KeptReader reader(&rotation, ring.data());
    for (int64_t begin = 0; begin < elements; begin += plan::kSpreadElements) {
      reader.Spread(std::min(plan::kSpreadElements, elements - begin), out.data());
    }
  });
  for (const DroppingRule* rule : DroppingRules()) {
    RuleInput input;
    input.elements = elements;
    input.picks = static_cast<int64_t>(rule->needs().default_share * static_cast<double>(kept));
    input.first_moment = moment.data();
    input.second_moment = moment.data();
    input.residual.fp32 = residual.data();
    input.gradient = gradient.data();
    std::vector<float> sketch;
    const std::string name = "pick " + std::string(rule->name());
    row(name.c_str(), [&] {
      if (rule->needs().agreement == RuleAgreement::kSketch) sketch = SketchOf(input);
      input.sketch = sketch;
      rule->Pick(input, absl::MakeSpan(words));
    });
  }
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  tessera::worker::Run(argc > 1 ? std::max(64LL, std::strtoll(argv[1], nullptr, 10)) : 10'000'000);
  return 0;
}
