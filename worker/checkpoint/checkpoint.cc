#include "worker/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/crc32c.h"
#include "worker/checkpoint/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

// Closes on the way out.
struct Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

absl::Status FileError(const std::string& path, const char* what) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

absl::Status SyncDirectory(const std::string& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY));
  if (directory.fd < 0 || ::fsync(directory.fd) != 0) return FileError(path, "can't flush");
  return absl::OkStatus();
}

struct FileDigest {
  int64_t bytes = 0;
  uint32_t crc32c = 0;
};

absl::StatusOr<FileDigest> Digest(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY));
  if (file.fd < 0) return FileError(path, "can't open");
  FileDigest digest;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t got = ::read(file.fd, buffer.data(), buffer.size());
    if (got < 0) return FileError(path, "can't read");
    if (got == 0) return digest;
    digest.bytes += got;
    digest.crc32c = Crc32c(buffer.data(), static_cast<size_t>(got), digest.crc32c);
  }
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
  if (file.fd < 0) return FileError(path, "can't create");
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file.fd, text.data() + done, text.size() - done);
    if (wrote < 0) return FileError(path, "can't write");
    done += static_cast<size_t>(wrote);
  }
  if (::fsync(file.fd) != 0) return FileError(path, "can't flush");
  return absl::OkStatus();
}

// An error that every rank learns, in place of the ranks' own.
absl::Status ShareVerdict(const absl::Status& own, Communicator& all) {
  constexpr int64_t kBytes = 512;
  const auto options = at::TensorOptions().dtype(at::kByte);
  const at::Tensor mine = at::zeros({kBytes}, options);
  if (!own.ok()) {
    const std::string text = own.message().empty() ? "unknown error" : std::string(own.message());
    std::memcpy(mine.data_ptr(), text.data(), std::min<size_t>(text.size(), kBytes - 1));
  }
  at::Tensor texts = at::empty({kBytes * all.size()}, options);
  TESSERA_RETURN_IF_ERROR(all.AllGather(mine, texts));
  std::string errors;
  for (int rank = 0; rank < all.size(); ++rank) {
    const char* text = static_cast<const char*>(texts.const_data_ptr()) + rank * kBytes;
    if (*text != 0) absl::StrAppend(&errors, errors.empty() ? "" : "; ", "rank ", rank, ": ", text);
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("checkpoint not written: ", errors));
}

absl::Status MakeAttempt(const std::string& attempt) {
  std::error_code error;
  fs::remove_all(attempt, error);
  fs::create_directories(attempt + "/units", error);
  if (error) return absl::FailedPreconditionError(absl::StrCat(attempt, ": can't create: ", error.message()));
  return absl::OkStatus();
}

// Writes the units this rank owns; [2 * units] int64 of bytes and checksums, zero elsewhere.
absl::StatusOr<at::Tensor> WriteOwnedUnits(const std::string& attempt, const UnitStore& store) {
  const plan::ModelShape& shape = store.model().shape();
  at::Tensor digests = at::zeros({2 * static_cast<int64_t>(store.plan().units().size())}, at::kLong);
  for (const UnitState& state : store.units()) {
    if (store.plan().Holders(state.unit)[0] != store.rank()) continue;
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& [prefix, flat] : {std::pair<std::string, at::Tensor>{"", state.parameters},
                                       {"exp_avg.", state.exp_avg},
                                       {"exp_avg_sq.", state.exp_avg_sq}}) {
      for (const UnitSlot& slot : state.layout.slots) {
        tensors.emplace_back(prefix + shape.parameters[slot.parameter].name, SlotView(shape, slot, flat));
      }
    }
    const std::string path = attempt + "/" + UnitFileName(store.plan().units()[state.unit].name);
    TESSERA_RETURN_IF_ERROR(WriteSafetensors(path, tensors));
    TESSERA_ASSIGN_OR_RETURN(const FileDigest digest, Digest(path));
    digests.data_ptr<int64_t>()[2 * state.unit] = digest.bytes;
    digests.data_ptr<int64_t>()[2 * state.unit + 1] = digest.crc32c;
  }
  return digests;
}

Manifest MakeManifest(const CheckpointInfo& info, const UnitStore& store, const at::Tensor& digests) {
  Manifest manifest;
  manifest.info = info;
  manifest.model_config = store.model().HuggingFaceConfig();
  manifest.shape_fingerprint = store.model().shape().Fingerprint();
  manifest.mask_fingerprint = store.plan().Fingerprint();
  manifest.workers = store.plan().workers();
  for (size_t u = 0; u < store.plan().units().size(); ++u) {
    const plan::Unit& unit = store.plan().units()[u];
    const auto holders = store.plan().Holders(static_cast<int>(u));
    ManifestUnit entry;
    entry.name = unit.name;
    entry.file = UnitFileName(unit.name);
    entry.bytes = digests.const_data_ptr<int64_t>()[2 * u];
    entry.crc32c = static_cast<uint32_t>(digests.const_data_ptr<int64_t>()[2 * u + 1]);
    entry.holder_share = store.plan().HolderShare(static_cast<int>(u));
    entry.always_on = unit.always_on;
    entry.holders.assign(holders.begin(), holders.end());
    manifest.units.push_back(std::move(entry));
  }
  return manifest;
}

// The last act, by rank 0 alone.
absl::Status Publish(const std::string& directory, const std::string& attempt, const Manifest& manifest) {
  for (const ManifestUnit& unit : manifest.units) {
    std::error_code error;
    const auto bytes = fs::file_size(attempt + "/" + unit.file, error);
    if (error || static_cast<int64_t>(bytes) != unit.bytes) {
      return absl::FailedPreconditionError(absl::StrCat(attempt, "/", unit.file,
                                                        ": not seen by rank 0 as its owner wrote it; the "
                                                        "checkpoint folder must be the same on all ranks"));
    }
  }
  TESSERA_RETURN_IF_ERROR(WriteText(attempt + "/manifest.json", ToJson(manifest)));
  TESSERA_RETURN_IF_ERROR(SyncDirectory(attempt + "/units"));
  TESSERA_RETURN_IF_ERROR(SyncDirectory(attempt));
  const std::string path = directory + "/" + StepDirectoryName(manifest.info.step);
  std::error_code error;
  fs::remove_all(path, error);  // of a run that was taken back to an earlier step
  if (std::rename(attempt.c_str(), path.c_str()) != 0) return FileError(path, "can't rename into place");
  return SyncDirectory(directory);
}

// What attempts of killed runs have left. The directory is one run's, and its own attempt is complete.
void RemoveAttempts(const std::string& directory) {
  std::error_code ignored;
  std::vector<fs::path> attempts;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, "step-") && absl::EndsWith(name, ".tmp")) attempts.push_back(entry.path());
  }
  for (const fs::path& attempt : attempts) fs::remove_all(attempt, ignored);
}

void RemoveOld(const std::string& directory, int keep) {
  const std::vector<std::string> all = ListCheckpoints(directory);
  for (size_t i = 0; i + static_cast<size_t>(std::max(keep, 1)) < all.size(); ++i) {
    std::error_code ignored;
    fs::remove(all[i] + "/manifest.json", ignored);  // incomplete first, then gone
    fs::remove_all(all[i], ignored);
  }
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const std::string& directory, const CheckpointInfo& info,
                                            const UnitStore& store, Communicator& all, int keep) {
  const std::string path = directory + "/" + StepDirectoryName(info.step);
  const std::string attempt = path + ".tmp";
  const auto give_up = [&](const absl::Status& status) {
    std::error_code ignored;
    if (all.rank() == 0) fs::remove_all(attempt, ignored);
    return status;
  };
  const absl::Status made = all.rank() == 0 ? MakeAttempt(attempt) : absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(ShareVerdict(made, all));

  absl::StatusOr<at::Tensor> digests = WriteOwnedUnits(attempt, store);
  if (absl::Status status = ShareVerdict(digests.status(), all); !status.ok()) return give_up(status);
  if (absl::Status status = all.AllReduceSum(*digests)->Wait(); !status.ok()) return give_up(status);

  absl::Status published;
  if (all.rank() == 0) published = Publish(directory, attempt, MakeManifest(info, store, *digests));
  if (absl::Status status = ShareVerdict(published, all); !status.ok()) return give_up(status);
  if (all.rank() == 0) {
    RemoveAttempts(directory);
    RemoveOld(directory, keep);
  }
  return path;
}

absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& checkpoint, UnitStore* store) {
  const at::NoGradGuard no_grad;
  TESSERA_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint));
  const plan::ModelShape& shape = store->model().shape();
  if (manifest.shape_fingerprint != shape.Fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint, ": is of another model than the job's"));
  }
  std::map<std::string, const ManifestUnit*> by_name;
  for (const ManifestUnit& unit : manifest.units) by_name[unit.name] = &unit;
  for (UnitState& state : store->units()) {
    const std::string& name = store->plan().units()[state.unit].name;
    const auto found = by_name.find(name);
    if (found == by_name.end()) return absl::DataLossError(absl::StrCat(checkpoint, ": lacks unit ", name));
    const std::string path = checkpoint + "/" + found->second->file;
    const absl::StatusOr<FileDigest> digest = Digest(path);
    std::error_code ignored;
    if (!digest.ok() && !fs::exists(path, ignored)) return absl::DataLossError(digest.status().message());
    if (!digest.ok()) return digest.status();
    if (digest->bytes != found->second->bytes || digest->crc32c != found->second->crc32c) {
      return absl::DataLossError(
          absl::StrCat(path, ": damaged: ", digest->bytes, " bytes, the manifest says ", found->second->bytes,
                       digest->bytes == found->second->bytes ? "; checksum differs" : ""));
    }
    TESSERA_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
    for (const auto& [prefix, flat] : {std::pair<std::string, at::Tensor>{"", state.parameters},
                                       {"exp_avg.", state.exp_avg},
                                       {"exp_avg_sq.", state.exp_avg_sq}}) {
      for (const UnitSlot& slot : state.layout.slots) {
        TESSERA_ASSIGN_OR_RETURN(const at::Tensor value,
                                 file->Read(prefix + shape.parameters[slot.parameter].name));
        SlotView(shape, slot, flat).copy_(value);
      }
    }
  }
  return manifest.info;
}

}  // namespace tessera::worker
