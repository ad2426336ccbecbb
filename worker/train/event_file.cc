#include "worker/train/event_file.h"

#include <unistd.h>

#include <bit>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/checkpoint/crc32c.h"

namespace tessera::worker {
namespace {

// The few parts of the protobuf wire format that an event needs.
void PutVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
void PutTag(std::string* out, int field, int wire_type) {
  PutVarint(out, static_cast<uint64_t>(field << 3 | wire_type));
}
template <typename T>
void PutLittleEndian(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}
void PutBytes(std::string* out, int field, const std::string& bytes) {
  PutTag(out, field, 2);
  PutVarint(out, bytes.size());
  out->append(bytes);
}

// Event: 1 wall_time double, 2 step int64, 3 file_version string, 5 summary.
std::string EventHead(absl::Time now, int64_t step) {
  std::string event;
  PutTag(&event, 1, 1);
  PutLittleEndian(&event, std::bit_cast<uint64_t>(absl::ToDoubleSeconds(now - absl::UnixEpoch())));
  PutTag(&event, 2, 0);
  PutVarint(&event, static_cast<uint64_t>(step));
  return event;
}

uint32_t MaskedCrc(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

std::string EventRecord(const std::string& event) {
  std::string length;
  PutLittleEndian(&length, static_cast<uint64_t>(event.size()));
  std::string record = length;
  PutLittleEndian(&record, MaskedCrc(length));
  record.append(event);
  PutLittleEndian(&record, MaskedCrc(event));
  return record;
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& directory, absl::Time now) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  const std::string path =
      absl::StrCat(directory, "/events.out.tfevents.", absl::ToUnixSeconds(now), ".", host);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) return absl::FailedPreconditionError(absl::StrCat(path, ": can't create"));
  std::string first = EventHead(now, 0);
  PutBytes(&first, 3, "brain.Event:2");
  out << EventRecord(first) << std::flush;
  return std::unique_ptr<EventFile>(new EventFile(std::move(out)));
}

void EventFile::AddScalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;  // Summary.Value: 1 tag, 2 simple_value float
    PutBytes(&value, 1, tag);
    PutTag(&value, 2, 5);
    PutLittleEndian(&value, std::bit_cast<uint32_t>(static_cast<float>(number)));
    PutBytes(&summary, 1, value);
  }
  std::string event = EventHead(absl::Now(), step);
  PutBytes(&event, 5, summary);
  out_ << EventRecord(event) << std::flush;
}

void EventFile::OnStep(const StepReport& report) {
  const double rate =
      report.step_seconds > 0 ? static_cast<double>(report.step_tokens) / report.step_seconds : 0;
  AddScalars(report.step, {{"loss/train", report.loss},
                           {"optimizer/learning_rate", report.learning_rate},
                           {"optimizer/gradient_norm", report.gradient_norm},
                           {"speed/tokens_per_second", rate},
                           {"speed/step_seconds", report.step_seconds},
                           {"speed/sync_seconds", report.sync_seconds},
                           {"memory/used_bytes", static_cast<double>(report.memory_used_bytes)},
                           {"memory/peak_bytes", static_cast<double>(report.memory_peak_bytes)},
                           {"traffic/bytes_per_step", static_cast<double>(report.traffic_bytes)}});
}

void EventFile::OnAccuracy(int64_t step, double accuracy) {
  AddScalars(step, {{"accuracy/validation", accuracy}});
}

void EventFile::OnEvaluation(int64_t step, double validation_loss, int64_t /*tokens*/) {
  AddScalars(step, {{"loss/validation", validation_loss}});
}

}  // namespace tessera::worker
