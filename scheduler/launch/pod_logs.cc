#include "scheduler/launch/pod_logs.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tessera::scheduler {
namespace {

constexpr int kTries = 5;
constexpr absl::Duration kWait = absl::Milliseconds(500);

}  // namespace

PodLogs::~PodLogs() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  stop_ = true;
  for (auto& [uid, copy] : copies_) {
    if (copy->thread.joinable()) copy->thread.join();
  }
}

void PodLogs::Follow(const std::string& pod, const std::string& uid, const std::string& file) {
  absl::MutexLock lock(&mutex_);
  auto& copy = copies_[uid];
  if (copy != nullptr) return;
  for (auto& [other, ended] : copies_) {
    if (ended != nullptr && ended->done && ended->thread.joinable()) ended->thread.join();
  }
  copy = std::make_unique<Copy>();
  copy->thread = std::thread([this, pod, file, copy = copy.get()] {
    Run(pod, file);
    copy->done = true;
  });
}

// A connection that breaks is begun anew with the whole log: the file's beginning stays what it was.
void PodLogs::Run(const std::string& pod, const std::string& file) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
  const std::string path =
      absl::StrCat("/api/v1/namespaces/", ns_, "/pods/", pod, "/log?container=worker&follow=true");
  const auto stopped = [this] { return stop_.load(); };
  for (int i = 0; i < kTries && !stop_; ++i) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    const absl::Status status = client_->Follow(
        path,
        [&](std::string_view text) {
          out.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
          return out.good();
        },
        stopped);
    if (status.ok() || absl::IsNotFound(status)) return;
    spdlog::warn("event=pod_log_cut_off pod={} error=\"{}\"", pod, status.ToString());
    absl::SleepFor(kWait * (i + 1));
  }
}

}  // namespace tessera::scheduler
