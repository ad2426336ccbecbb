#include "worker/checkpoint/checkpoint_writer.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/checkpoint/agreement.h"
#include "worker/checkpoint/durable_file.h"
#include "worker/checkpoint/residual_state.h"
#include "worker/checkpoint/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

std::string FileNameOf(const std::string& unit, int rank) {
  std::string safe = unit;
  std::replace(safe.begin(), safe.end(), '/', '_');
  return absl::StrCat("units/", safe, ".", rank, ".safetensors");
}

std::string StateName(const std::string& state, const std::string& piece) {
  return state.empty() ? piece : absl::StrCat(state, ".", piece);
}

absl::Status MakeAttempt(const std::string& attempt) {
  std::error_code error;
  fs::create_directories(attempt + "/units", error);
  if (error) return FileError("can't create", attempt, error.value());
  return absl::OkStatus();
}

Manifest Describe(const CheckpointInfo& info, const UnitStore& store) {
  Manifest manifest;
  manifest.info = info;
  manifest.model_config = store.model().HuggingFaceConfig();
  manifest.shape_fingerprint = store.model().shape().Fingerprint();
  manifest.mask_fingerprint = store.plan().Fingerprint();
  manifest.workers = store.plan().workers();
  for (size_t u = 0; u < store.plan().units().size(); ++u) {
    const plan::Unit& unit = store.plan().units()[u];
    const auto holders = store.plan().Holders(static_cast<int>(u));
    // What branches of the assembled model are scaled by; with backward masking all of them always ran.
    const bool scaled = !unit.always_on && !store.options().backward_masking;
    manifest.units.push_back({unit.name,
                              unit.block,
                              scaled ? store.plan().BlockHolderShare(unit.block) : 1,
                              unit.always_on,
                              {holders.begin(), holders.end()}});
  }
  return manifest;
}

}  // namespace

struct CheckpointWriter::Part {
  std::unique_ptr<SafetensorsWriter> writer;
  ManifestFile file;
};

CheckpointWriter::CheckpointWriter(std::string directory, const Retention& retention, Communicator* all)
    : directory_(std::move(directory)), retention_(retention), all_(all) {}

CheckpointWriter::~CheckpointWriter() {
  {
    absl::MutexLock lock(&mutex_);
    abandoned_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status CheckpointWriter::Begin(const CheckpointInfo& info, const UnitStore& store,
                                     const at::Tensor& residual) {
  TESSERA_CHECK(!active_);
  // A name of its own: what a run that is fenced still writes is not taken for this one's.
  const at::Tensor draw = at::full({1}, static_cast<int64_t>(std::random_device()()), at::kLong);
  TESSERA_RETURN_IF_ERROR(all_->Broadcast(draw, 0));
  attempt_ =
      absl::StrFormat("%s/%s-%08x.tmp", directory_, StepDirectoryName(info.step), draw[0].item<int64_t>());
  const absl::Status made = all_->rank() == 0 ? MakeAttempt(attempt_) : absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(ShareVerdict(made, *all_));

  shape_ = store.model().shape();
  manifest_ = Describe(info, store);
  owned_ = HeldPieces(store);
  std::erase_if(owned_, [](const HeldPiece& held) { return !held.owned; });
  residual_ = ResidualPieces(store, residual);
  {
    absl::MutexLock lock(&mutex_);
    passed_ = residual_.empty() ? FirstUnit() : kResidual;
    done_ = false;
    status_ = absl::OkStatus();
  }
  active_ = true;
  thread_ = std::thread([this] { WriteAll(); });
  return absl::OkStatus();
}

bool CheckpointWriter::written() const {
  absl::MutexLock lock(&mutex_);
  return done_;
}

void CheckpointWriter::BeforeUpdate(int unit) {
  if (!active_) return;
  const auto passed = [this, unit]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return passed_ > unit || done_; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&passed));
}

void CheckpointWriter::WriteAll() {
  absl::Status status;
  try {
    status = WriteParts();
  } catch (const std::exception& error) {  // nobody above this thread would
    status = absl::InternalError(absl::StrCat("writing a checkpoint: ", error.what()));
  }
  parts_.clear();  // files of an attempt that failed are closed before it is removed
  absl::MutexLock lock(&mutex_);
  status_ = status;
  done_ = true;
}

int CheckpointWriter::FirstUnit() const {
  return owned_.empty() ? std::numeric_limits<int>::max() : owned_.front().unit;
}

// All pieces of a file, up to the flush.
absl::Status CheckpointWriter::WritePart(const std::string& file, absl::Span<const HeldPiece> pieces) {
  Part part;
  part.file.file = file;
  part.file.unit = pieces[0].unit;
  std::vector<SafetensorsWriter::Entry> entries;
  for (const HeldPiece& held : pieces) {
    part.file.pieces.push_back(held.piece);
    for (const auto& [state, tensor] : held.states) {
      entries.push_back({StateName(state, PieceName(shape_, held.piece)), tensor.scalar_type(),
                         PieceDims(shape_, held.piece)});
    }
  }
  TESSERA_ASSIGN_OR_RETURN(part.writer, SafetensorsWriter::Create(attempt_ + "/" + part.file.file, entries));
  for (const HeldPiece& held : pieces) {
    {
      absl::ReaderMutexLock lock(&mutex_);
      if (abandoned_) return absl::CancelledError("abandoned");
    }
    for (const auto& [state, tensor] : held.states) {
      TESSERA_RETURN_IF_ERROR(part.writer->Append(tensor.detach().reshape(PieceDims(shape_, held.piece))));
    }
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status CheckpointWriter::WriteParts() {
  parts_.clear();
  const auto pass = [this](int unit) {
    absl::MutexLock lock(&mutex_);
    passed_ = unit;
  };
  if (!residual_.empty()) {
    TESSERA_RETURN_IF_ERROR(WritePart(absl::StrCat("residual.", all_->rank(), ".safetensors"), residual_));
    parts_.back().file.unit = all_->rank();
    pass(FirstUnit());
  }
  for (size_t begin = 0, end = 0; begin < owned_.size(); begin = end) {
    const int unit = owned_[begin].unit;
    while (end < owned_.size() && owned_[end].unit == unit) ++end;
    const absl::Span<const HeldPiece> pieces = absl::MakeConstSpan(owned_).subspan(begin, end - begin);
    TESSERA_RETURN_IF_ERROR(WritePart(FileNameOf(manifest_.units[unit].name, all_->rank()), pieces));
    pass(end < owned_.size() ? owned_[end].unit : std::numeric_limits<int>::max());
  }
  for (size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    TESSERA_RETURN_IF_ERROR(part.writer->Finish());
    part.file.digest = part.writer->digest();
    const bool residual = p == 0 && !residual_.empty();
    (residual ? manifest_.residuals : manifest_.files).push_back(std::move(part.file));
  }
  parts_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointWriter::GiveUp(const absl::Status& status) {
  std::error_code ignored;
  if (all_->rank() == 0) fs::remove_all(attempt_, ignored);
  if (absl::IsUnavailable(status)) return status;
  return absl::Status(status.code(), absl::StrCat("checkpoint not written: ", status.message()));
}

absl::StatusOr<std::string> CheckpointWriter::Finish() {
  TESSERA_CHECK(active_);
  thread_.join();
  active_ = false;
  absl::Status own;
  {
    absl::MutexLock lock(&mutex_);
    own = status_;
  }
  if (absl::Status status = ShareVerdict(own, *all_); !status.ok()) return GiveUp(status);
  for (std::vector<ManifestFile>* files : {&manifest_.files, &manifest_.residuals}) {
    if (absl::Status status = GatherFiles(files); !status.ok()) return GiveUp(status);
  }
  const absl::Status published = all_->rank() == 0 ? Publish() : absl::OkStatus();
  if (absl::Status status = ShareVerdict(published, *all_); !status.ok()) return GiveUp(status);
  if (all_->rank() == 0) {
    RemoveAttempts(directory_);
    RemoveOld(directory_, retention_, manifest_.info.step);
  }
  return directory_ + "/" + StepDirectoryName(manifest_.info.step);
}

// Rank 0 gets the files of all ranks.
absl::Status CheckpointWriter::GatherFiles(std::vector<ManifestFile>* files) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> lists, GatherTexts(ToJson(*files), *all_));
  absl::Status status;
  std::vector<ManifestFile> all;
  for (const std::string& list : lists) {
    auto of = ParseManifestFiles(list);
    status.Update(of.status());
    if (of.ok()) std::move(of->begin(), of->end(), std::back_inserter(all));
  }
  *files = std::move(all);
  return ShareVerdict(status, *all_);
}

// The last act, by rank 0 alone.
absl::Status CheckpointWriter::Publish() {
  std::vector<Piece> pieces;
  std::vector<ManifestFile> files = manifest_.files;
  for (const ManifestFile& file : files) pieces.insert(pieces.end(), file.pieces.begin(), file.pieces.end());
  files.insert(files.end(), manifest_.residuals.begin(), manifest_.residuals.end());
  for (const ManifestFile& file : files) {
    std::error_code error;
    const auto bytes = fs::file_size(attempt_ + "/" + file.file, error);
    if (error || static_cast<int64_t>(bytes) != file.digest.bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(attempt_, "/", file.file,
                       ": not seen by rank 0 as its owner wrote it; spec.checkpoint.uri must be one folder "
                       "that all ranks see"));
    }
  }
  if (absl::Status status = CheckCoverage(shape_, pieces); !status.ok()) {
    return absl::InternalError(absl::StrCat("the ranks' parts are no whole model: ", status.message()));
  }
  TESSERA_RETURN_IF_ERROR(WriteDurably(attempt_ + "/manifest.json", ToJson(manifest_)));
  TESSERA_RETURN_IF_ERROR(SyncDirectory(attempt_ + "/units"));
  TESSERA_RETURN_IF_ERROR(SyncDirectory(attempt_));
  return PutInPlace(attempt_, directory_ + "/" + StepDirectoryName(manifest_.info.step));
}

}  // namespace tessera::worker
