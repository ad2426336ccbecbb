#include "worker/eval/command_line.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera::worker {
namespace {

constexpr int kFailed = 1, kBadCommandLine = 2, kInvalid = 3;

absl::Status Guarded(const std::function<absl::Status()>& body) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    // The CPU allocator has no error type of its own.
    if (text.find("not enough memory") != std::string::npos) return absl::ResourceExhaustedError(text);
    return absl::InternalError(text);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace

int RunCommand(CLI::App& app, int argc, char** argv, const std::function<absl::Status()>& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadCommandLine;
  }
  const absl::Status status = Guarded(body);
  if (status.ok()) return 0;
  std::string message(status.message());
  std::replace(message.begin(), message.end(), '\n', ' ');  // one line, the last
  std::fprintf(stderr, "%s: %s\n", absl::StatusCodeToString(status.code()).c_str(), message.c_str());
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ? kInvalid : kFailed;
}

}  // namespace tessera::worker
