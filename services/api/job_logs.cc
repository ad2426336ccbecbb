#include "services/api/job_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

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
  not_negative("limitBytes", request.limit_bytes());
  return spec::MakeInvalid(violations);
}

struct Slice {
  int64_t begin = 0;    // offset of the first byte
  int64_t dropped = 0;  // bytes before it that are no longer kept (BoundLog)
  std::string bytes;
};

void DropFirstLine(Slice* slice) {
  const size_t end = slice->bytes.find('\n');
  if (end == std::string::npos) return;
  slice->bytes.erase(0, end + 1);
  slice->begin += static_cast<int64_t>(end) + 1;
}

Slice ReadSlice(const std::string& path, int64_t offset, int64_t limit, int64_t size) {
  Slice slice{.begin = offset};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return slice;
  if (offset < size) {
    const int64_t data = ::lseek(fd, offset, SEEK_DATA);
    if (data > offset) slice = {.begin = data, .dropped = data - offset};
  }
  slice.bytes.resize(static_cast<size_t>(std::min(limit, size - slice.begin)));
  const ssize_t got = ::pread(fd, slice.bytes.data(), slice.bytes.size(), slice.begin);
  ::close(fd);
  slice.bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (slice.dropped > 0) DropFirstLine(&slice);
  return slice;
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
  // An elastic job's earlier groups may have been larger than the present one.
  const int ranks = std::max(job.spec().workers().count(), job.spec().workers().max());
  if (request.rank() >= ranks) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.name(), " has ranks 0 to ", ranks - 1, ", not ", request.rank()));
  }
  if (epoch > status.epoch()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.name(), " has no epoch ", epoch, "; the newest is ", status.epoch()));
  }
  const bool over = IsTerminal(status.state()) || epoch < status.epoch();
  v1::GetLogsResponse response;
  response.set_next_offset(std::max<int64_t>(0, request.offset()));
  const std::filesystem::path path = std::filesystem::path(status.run_directory()) / "logs" /
                                     absl::StrCat("epoch-", epoch, "-rank-", request.rank(), ".log");
  std::error_code error;
  const uintmax_t size = status.run_directory().empty() ? 0 : std::filesystem::file_size(path, error);
  if (status.run_directory().empty() || error) {  // nothing written yet, or cleaned up since
    response.set_complete(over);
    return response;
  }
  const int64_t wanted = request.offset() >= 0
                             ? request.offset()
                             : std::max<int64_t>(0, static_cast<int64_t>(size) + request.offset());
  if (static_cast<uintmax_t>(wanted) > size) {
    return absl::OutOfRangeError(absl::StrCat("offset ", wanted, " is beyond the log's end at ", size));
  }
  const int64_t limit =
      request.limit_bytes() == 0 ? kMaxLogSlice : std::min(request.limit_bytes(), kMaxLogSlice);
  Slice slice = ReadSlice(path.string(), wanted, limit, static_cast<int64_t>(size));
  if (wanted > 0 && request.offset() < 0) DropFirstLine(&slice);
  const bool at_end = slice.begin + static_cast<int64_t>(slice.bytes.size()) >= static_cast<int64_t>(size);
  // A limit too small for one character must still make progress.
  if (const size_t tail = UnfinishedTail(slice.bytes); !(at_end && over) && tail < slice.bytes.size()) {
    slice.bytes.resize(slice.bytes.size() - tail);
  }
  response.set_next_offset(slice.begin + static_cast<int64_t>(slice.bytes.size()));
  response.set_text(AsUtf8(slice.bytes));
  if (slice.dropped > 0) {
    response.set_text(
        absl::StrCat("[", slice.dropped, " bytes of older output are no longer kept]\n", response.text()));
  }
  response.set_complete(over && at_end);
  return response;
}

}  // namespace tessera::services
