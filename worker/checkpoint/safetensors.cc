#include "worker/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <torch/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/checkpoint/durable_file.h"

namespace tessera::worker {
namespace {

constexpr uint64_t kLargestHeader = uint64_t{100} << 20;  // the format's own limit
constexpr size_t kLengthBytes = 8;

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr TypeName kTypes[] = {{at::kFloat, "F32"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"},
                               {at::kLong, "I64"},  {at::kInt, "I32"},       {at::kByte, "U8"}};

const char* NameOf(at::ScalarType type) {
  for (const TypeName& entry : kTypes) {
    if (entry.type == type) return entry.name;
  }
  return nullptr;
}

// Bytes of a tensor; -1 when the dims are negative or the product overflows.
int64_t ByteCount(const std::vector<int64_t>& dims, at::ScalarType type) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) return -1;
  }
  return bytes;
}

class FileWriter final : public SafetensorsWriter {
 public:
  FileWriter(std::string path, int fd, std::vector<Entry> entries)
      : path_(std::move(path)), fd_(fd), entries_(std::move(entries)) {}
  ~FileWriter() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Append(const at::Tensor& tensor) override {
    if (fd_ < 0) return absl::FailedPreconditionError(absl::StrCat(path_, " is finished"));
    if (next_ == entries_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": all ", entries_.size(), " tensors are written"));
    }
    const Entry& entry = entries_[next_];
    if (!tensor.defined() || tensor.scalar_type() != entry.dtype ||
        tensor.sizes() != at::IntArrayRef(entry.dims)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": tensor ", entry.name, " was announced as ", NameOf(entry.dtype), " [",
                       absl::StrJoin(entry.dims, ", "), "]",
                       tensor.defined() ? absl::StrCat(" but is [", absl::StrJoin(tensor.sizes(), ", "),
                                                       "] of ", c10::toString(tensor.scalar_type()))
                                        : " but is undefined"));
    }
    const at::Tensor flat = tensor.detach().to(at::kCPU).contiguous();
    TESSERA_RETURN_IF_ERROR(Write(flat.const_data_ptr(), flat.nbytes()));
    ++next_;
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (fd_ < 0) return absl::OkStatus();
    if (next_ != entries_.size()) {
      return absl::FailedPreconditionError(absl::StrCat(path_, ": ", next_, " of ", entries_.size(),
                                                        " tensors written, next is ", entries_[next_].name));
    }
    if (fsync(fd_) != 0) return FileError("can't sync", path_, errno);
    if (close(std::exchange(fd_, -1)) != 0) return FileError("can't close", path_, errno);
    return absl::OkStatus();
  }

  FileDigest digest() const override { return digest_; }

  absl::Status Write(const void* data, size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = write(fd_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return FileError("can't write", path_, errno);
      digest_.crc32c = Crc32c(at, static_cast<size_t>(written), digest_.crc32c);
      digest_.bytes += written;
      at += written;
      size -= static_cast<size_t>(written);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  int fd_;
  const std::vector<Entry> entries_;
  size_t next_ = 0;
  FileDigest digest_;
};

struct Stored {
  at::ScalarType type;
  std::vector<int64_t> dims;
  uint64_t begin;  // from the start of the file
};

class MappedFile final : public SafetensorsFile {
 public:
  MappedFile(std::string path, void* data, size_t size) : path_(std::move(path)), data_(data), size_(size) {}
  ~MappedFile() override { munmap(data_, size_); }

  absl::Status Parse();

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, stored] : tensors_) names.push_back(name);
    return names;
  }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  std::vector<int64_t> Dims(const std::string& name) const override { return tensors_.at(name).dims; }

  absl::StatusOr<at::Tensor> Borrow(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return Missing(name);
    const Stored& stored = found->second;
    // from_blob neither copies nor owns.
    return at::from_blob(static_cast<char*>(data_) + stored.begin, stored.dims,
                         at::TensorOptions().dtype(stored.type));
  }

  absl::StatusOr<at::Tensor> Read(const std::string& name) const override {
    TESSERA_ASSIGN_OR_RETURN(const at::Tensor view, Borrow(name));
    const bool floating = c10::isFloatingType(view.scalar_type());
    return view.to(floating ? at::kFloat : view.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }

 private:
  absl::Status Bad(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(path_, ": ", what));
  }
  absl::Status Missing(const std::string& name) const;
  absl::Status ParseTensor(const std::string& name, const nlohmann::json& entry, uint64_t data_begin);

  const std::string path_;
  void* const data_;
  const size_t size_;
  std::map<std::string, Stored> tensors_;
  std::map<std::string, std::string> metadata_;
};

absl::Status MappedFile::Missing(const std::string& name) const {
  std::vector<std::string> some = names();
  const size_t all = some.size();
  if (all > 5) some.resize(5);
  return absl::NotFoundError(absl::StrCat(path_, " holds no tensor '", name, "'; of its ", all, ": ",
                                          absl::StrJoin(some, ", "), all > 5 ? ", ..." : ""));
}

absl::Status MappedFile::ParseTensor(const std::string& name, const nlohmann::json& entry,
                                     uint64_t data_begin) {
  const std::string type = entry.at("dtype").get<std::string>();
  const auto dims = entry.at("shape").get<std::vector<int64_t>>();
  const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
  const TypeName* known = nullptr;
  for (const TypeName& candidate : kTypes) {
    if (type == candidate.name) known = &candidate;
  }
  if (known == nullptr) {
    return absl::UnimplementedError(absl::StrCat(path_, ": tensor ", name, " has type ", type,
                                                 "; read are F32, BF16, F16, I64, I32, U8"));
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size_ - data_begin) {
    return Bad(absl::StrCat("tensor ", name, " lies at bytes [", absl::StrJoin(offsets, ", "), ") of ",
                            size_ - data_begin, " bytes of data"));
  }
  const int64_t bytes = ByteCount(dims, known->type);
  if (bytes < 0 || static_cast<uint64_t>(bytes) != offsets[1] - offsets[0]) {
    return Bad(absl::StrCat("tensor ", name, " of ", type, " [", absl::StrJoin(dims, ", "), "] has ",
                            offsets[1] - offsets[0], " bytes"));
  }
  tensors_.emplace(name, Stored{known->type, dims, data_begin + offsets[0]});
  return absl::OkStatus();
}

absl::Status MappedFile::Parse() {
  if (size_ < kLengthBytes)
    return Bad(absl::StrCat("has ", size_, " bytes; a safetensors file has at least 8"));
  uint64_t length = 0;
  std::memcpy(&length, data_, kLengthBytes);
  if (length > kLargestHeader || length > size_ - kLengthBytes) {
    return Bad(absl::StrCat("says its header has ", length, " bytes, but the file has ", size_));
  }
  const char* text = static_cast<const char*>(data_) + kLengthBytes;
  const nlohmann::json header =
      nlohmann::json::parse(text, text + length, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Bad("its header is no JSON object");
  for (const auto& [name, entry] : header.items()) {
    try {
      if (name == "__metadata__") {
        metadata_ = entry.get<std::map<std::string, std::string>>();
      } else {
        TESSERA_RETURN_IF_ERROR(ParseTensor(name, entry, kLengthBytes + length));
      }
    } catch (const nlohmann::json::exception& error) {
      return Bad(absl::StrCat("header entry ", name, ": ", error.what()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<Entry> entries, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const Entry& entry : entries) {
    const char* type = NameOf(entry.dtype);
    const int64_t bytes = type == nullptr ? -1 : ByteCount(entry.dims, entry.dtype);
    if (bytes < 0 || entry.name == "__metadata__" || header.contains(entry.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": cannot store tensor ", entry.name,
                       type == nullptr ? " of this type" : ": name or shape is invalid"));
    }
    header[entry.name] = {{"dtype", type}, {"shape", entry.dims}, {"data_offsets", {offset, offset + bytes}}};
    offset += static_cast<uint64_t>(bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  const uint64_t length = text.size();

  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("can't create", path, errno);
  auto writer = std::make_unique<FileWriter>(path, fd, std::move(entries));
  TESSERA_RETURN_IF_ERROR(writer->Write(&length, kLengthBytes));
  TESSERA_RETURN_IF_ERROR(writer->Write(text.data(), text.size()));
  return writer;
}

absl::Status WriteSafetensors(const std::string& path,
                              const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined())
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", name, " is undefined"));
    entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  TESSERA_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, std::move(entries), metadata));
  for (const auto& [name, tensor] : tensors) TESSERA_RETURN_IF_ERROR(writer->Append(tensor));
  return writer->Finish();
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("can't open", path, errno);
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    close(fd);
    return absl::DataLossError(absl::StrCat(path, " is empty or no regular file"));
  }
  void* data = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (data == MAP_FAILED) return FileError("can't map", path, errno);
  auto file = std::make_unique<MappedFile>(path, data, static_cast<size_t>(status.st_size));
  TESSERA_RETURN_IF_ERROR(file->Parse());
  return file;
}

}  // namespace tessera::worker
