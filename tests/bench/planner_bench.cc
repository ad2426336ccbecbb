// Times plan::Place on unlike workers, by size, and fits the growth between sizes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/placement.h"

namespace tessera::plan {
namespace {

PlacementRequest MakeRequest(int workers, int units) {
  PlacementRequest request;
  request.coverage = 0.5;
  request.always_on = {
      .elements = 1'000'000, .bytes = 16'000'000, .flops_per_sample = 1e9, .sync_bytes = 4'000'000};
  for (int u = 0; u < units; ++u) {
    const auto elements = static_cast<int64_t>(1'000'000 + CounterRandom(1, u) % 500'000);
    request.units.push_back({.elements = elements,
                             .bytes = 16 * elements,
                             .flops_per_sample = 6e3 * static_cast<double>(elements),
                             .sync_bytes = 4 * elements});
  }
  for (int w = 0; w < workers; ++w) {
    const double speed = 1e12 * (1 + static_cast<double>(CounterRandom(2, w) % 1000) / 1000);
    const double link = 1e8 * (1 + static_cast<double>(CounterRandom(3, w) % 1000) / 250);
    const auto memory = static_cast<int64_t>(16'000'000.0 * units *
                                             (0.7 + static_cast<double>(CounterRandom(4, w) % 8) / 10));
    request.workers.push_back(
        {.memory_bytes = 32'000'000 + memory, .flops_per_second = speed, .bytes_per_second = link});
  }
  return request;
}

double MillisecondsToPlace(const PlacementRequest& request) {
  std::vector<double> times;
  for (int run = 0; run < 7; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const auto answer = Place(request);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (!answer.ok() || !answer->placement) {
      std::fprintf(stderr, "no placement: %s\n",
                   answer.ok() ? answer->infeasibility->message.c_str() : answer.status().ToString().c_str());
      std::exit(1);
    }
    times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void Run() {
  std::printf(
      "| workers | units | ms (median of 7) | growth since the row before: time ~ (workers x units)^x "
      "|\n|---|---|---|---|\n");
  double last_size = 0;
  double last_time = 0;
  for (const auto& [workers, units] : {std::pair{31, 512},
                                       {62, 512},
                                       {125, 512},
                                       {250, 512},
                                       {500, 512},
                                       {1000, 512},
                                       {2000, 512},
                                       {1000, 128},
                                       {1000, 2048}}) {
    const double time = MillisecondsToPlace(MakeRequest(workers, units));
    const double size = static_cast<double>(workers) * units;
    const bool follows = units == 512 && last_size > 0;
    std::printf(
        "| %d | %d | %.2f | %s |\n", workers, units, time,
        follows ? std::to_string(std::log(time / last_time) / std::log(size / last_size)).c_str() : "");
    std::fflush(stdout);
    last_size = units == 512 ? size : 0;
    last_time = time;
  }
}

}  // namespace
}  // namespace tessera::plan

int main() { tessera::plan::Run(); }
