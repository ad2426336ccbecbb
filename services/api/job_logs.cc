#include "services/api/job_logs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/violation.h"

namespace tessera::services {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Bytes of the character that `lead` begins; 1 for a byte that begins none.
size_t Length(unsigned char lead) {
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 1;
}

bool IsCharacter(const std::string& text, size_t at, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (length == 1) return byte(0) < 0x80;
  if (at + length > text.size()) return false;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return false;
  }
  return !(byte(0) == 0xE0 && byte(1) < 0xA0) && !(byte(0) == 0xED && byte(1) > 0x9F) &&
         !(byte(0) == 0xF0 && byte(1) < 0x90) && !(byte(0) == 0xF4 && byte(1) > 0x8F);
}

// How many bytes of an unfinished character the text ends in.
size_t UnfinishedTail(const std::string& text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const unsigned char byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    return Length(byte) > back ? back : 0;
  }
  return 0;
}

std::string AsUtf8(const std::string& bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = Length(static_cast<unsigned char>(bytes[i]));
    if (IsCharacter(bytes, i, length)) {
      text.append(bytes, i, length);
      i += length;
    } else {
      text += kReplacement;
      ++i;
    }
  }
  return text;
}

absl::Status CheckRequest(const v1::GetLogsRequest& request) {
  std::vector<spec::Violation> violations;
  const auto not_negative = [&](const char* path, int64_t value) {
    if (value < 0) {
      violations.push_back({.path = path, .value = absl::StrCat(value), .message = "must not be negative"});
    }
  };
  not_negative("rank", request.rank());
  not_negative("epoch", request.epoch());
  not_negative("offset", request.offset());
  not_negative("limitBytes", request.limit_bytes());
  return spec::MakeInvalid(violations);
}

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

absl::StatusOr<v1::GetLogsResponse> ReadLogs(const v1::TrainingJob& job, const v1::GetLogsRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckRequest(request));
  const v1::TrainingJobStatus& status = job.status();
  const int epoch = request.epoch() > 0 ? request.epoch() : status.epoch();
  if (request.rank() >= job.spec().workers().count()) {
    return absl::NotFoundError(absl::StrCat("job ", job.name(), " has ranks 0 to ",
                                            job.spec().workers().count() - 1, ", not ", request.rank()));
  }
  if (epoch > status.epoch()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.name(), " has no epoch ", epoch, "; the newest is ", status.epoch()));
  }
  const bool over = IsTerminal(status.state()) || epoch < status.epoch();
  v1::GetLogsResponse response;
  response.set_next_offset(request.offset());
  const std::filesystem::path path = std::filesystem::path(status.run_directory()) / "logs" /
                                     absl::StrCat("epoch-", epoch, "-rank-", request.rank(), ".log");
  std::error_code error;
  const uintmax_t size = status.run_directory().empty() ? 0 : std::filesystem::file_size(path, error);
  if (status.run_directory().empty() || error) {  // nothing written yet, or cleaned up since
    response.set_complete(over);
    return response;
  }
  if (static_cast<uintmax_t>(request.offset()) > size) {
    return absl::OutOfRangeError(
        absl::StrCat("offset ", request.offset(), " is beyond the log's end at ", size));
  }
  const int64_t limit =
      request.limit_bytes() == 0 ? kMaxLogSlice : std::min(request.limit_bytes(), kMaxLogSlice);
  std::string bytes(std::min<uintmax_t>(limit, size - request.offset()), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(request.offset());
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  const bool at_end = request.offset() + bytes.size() >= size;
  // A limit too small for one character must still make progress.
  if (const size_t tail = UnfinishedTail(bytes); !(at_end && over) && tail < bytes.size()) {
    bytes.resize(bytes.size() - tail);
  }
  response.set_next_offset(request.offset() + static_cast<int64_t>(bytes.size()));
  response.set_text(AsUtf8(bytes));
  response.set_complete(over && at_end);
  return response;
}

}  // namespace tessera::services
