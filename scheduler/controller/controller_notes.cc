#include "scheduler/controller/controller_notes.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace tessera::scheduler {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kAlways = std::numeric_limits<int64_t>::min();

int64_t ToJson(absl::Time time) {
  if (time == absl::InfiniteFuture()) return kNever;
  if (time == absl::InfinitePast()) return kAlways;
  return absl::ToUnixMicros(time);
}

absl::Time TimeFromJson(int64_t micros) {
  if (micros == kNever) return absl::InfiniteFuture();
  if (micros == kAlways) return absl::InfinitePast();
  return absl::FromUnixMicros(micros);
}

}  // namespace

std::string Encode(const ControllerNotes& notes) {
  return nlohmann::json{{"failures", notes.failures},
                        {"failure", notes.failure},
                        {"queued_at", ToJson(notes.queued_at)},
                        {"retry_at", ToJson(notes.retry_at)},
                        {"stopping_since", ToJson(notes.stopping_since)},
                        {"usable_bytes", notes.usable_bytes},
                        {"usable_rank", notes.usable_rank},
                        {"planned", notes.planned},
                        {"resize_to", notes.resize_to},
                        {"workers", notes.workers},
                        {"grow_to", notes.grow_to},
                        {"delete_when_done", notes.delete_when_done},
                        {"first_step_counted", notes.first_step_counted},
                        {"outcomes", notes.outcomes}}  // Error texts of workers may hold any bytes.
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ControllerNotes DecodeNotes(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    ControllerNotes notes;
    notes.failures = json.at("failures").get<decltype(notes.failures)>();
    notes.failure = json.at("failure");
    notes.queued_at = TimeFromJson(json.at("queued_at"));
    notes.retry_at = TimeFromJson(json.at("retry_at"));
    notes.stopping_since = TimeFromJson(json.at("stopping_since"));
    notes.usable_bytes = json.value("usable_bytes", int64_t{0});
    notes.usable_rank = json.value("usable_rank", 0);
    notes.planned = json.at("planned");
    notes.resize_to = json.value("resize_to", 0);
    notes.workers = json.value("workers", 0);
    notes.grow_to = json.value("grow_to", 0);
    notes.delete_when_done = json.at("delete_when_done");
    notes.first_step_counted = json.at("first_step_counted");
    notes.outcomes = json.at("outcomes").get<std::vector<int>>();
    return notes;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace tessera::scheduler
