#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/data/image_source.h"
#include "worker/data/mapped_file.h"

namespace tessera::worker {
namespace {

constexpr int64_t kSize = 32, kPixels = 3 * kSize * kSize;

struct Variant {
  const char* name;
  int64_t labels;  // bytes of them; the last counts
  int64_t classes;
  ImageFormat format;
  int64_t record() const { return labels + kPixels; }
};

// Mean and deviation of the training images.
const Variant kCifar10{
    "CIFAR-10", 1, 10, {3, kSize, kSize, {0.4914F, 0.4822F, 0.4465F}, {0.2470F, 0.2435F, 0.2616F}}};
const Variant kCifar100{
    "CIFAR-100", 2, 100, {3, kSize, kSize, {0.5071F, 0.4867F, 0.4408F}, {0.2675F, 0.2565F, 0.2761F}}};

struct RecordFile {
  std::unique_ptr<MappedFile> file;
  int64_t first = 0;  // index of its first record
  int64_t count = 0;
};

class CifarRecords final : public ImageSource {
 public:
  CifarRecords(const Variant& variant, std::vector<RecordFile> files)
      : variant_(variant), files_(std::move(files)) {}

  const ImageFormat& format() const override { return variant_.format; }
  int64_t images() const override { return files_.back().first + files_.back().count; }
  int64_t label(int64_t image) const override { return Record(image)[variant_.labels - 1]; }

  std::string WhereLabel(int64_t image) const override {
    const RecordFile& file = FileOf(image);
    return absl::StrCat(file.file->path(), ": label at offset ",
                        (image - file.first) * variant_.record() + variant_.labels - 1);
  }

  absl::Status Read(int64_t image, std::span<uint8_t> pixels) const override {
    TESSERA_CHECK(static_cast<int64_t>(pixels.size()) == kPixels);
    std::copy_n(Record(image) + variant_.labels, kPixels, pixels.data());
    return absl::OkStatus();
  }
  void Release() const override {
    for (const RecordFile& file : files_) file.file->Release();
  }

 private:
  const RecordFile& FileOf(int64_t image) const {
    TESSERA_CHECK(image >= 0 && image < images());
    return *(std::upper_bound(files_.begin(), files_.end(), image,
                              [](int64_t wanted, const RecordFile& file) { return wanted < file.first; }) -
             1);
  }
  const uint8_t* Record(int64_t image) const {
    const RecordFile& file = FileOf(image);
    return file.file->bytes().data() + (image - file.first) * variant_.record();
  }

  const Variant& variant_;
  const std::vector<RecordFile> files_;
};

bool LabelsFit(const MappedFile& file, const Variant& variant) {
  for (size_t at = variant.labels - 1; at < file.bytes().size(); at += variant.record()) {
    if (file.bytes()[at] >= variant.classes) return false;
  }
  return true;
}

absl::StatusOr<const Variant*> VariantOf(const MappedFile& file) {
  const auto size = static_cast<int64_t>(file.bytes().size());
  const bool ten = size % kCifar10.record() == 0, hundred = size % kCifar100.record() == 0;
  if (size > 0 && ten && hundred) return LabelsFit(file, kCifar10) ? &kCifar10 : &kCifar100;
  if (size > 0 && (ten || hundred)) return ten ? &kCifar10 : &kCifar100;
  const auto rest = [&](const Variant& variant) {
    return absl::StrCat(variant.name, " (the record at offset ", size - size % variant.record(), " has ",
                        size % variant.record(), " of ", variant.record(), " bytes)");
  };
  return absl::DataLossError(absl::StrCat(file.path(), ": its ", size, " bytes are no whole records of ",
                                          rest(kCifar10), " nor of ", rest(kCifar100)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageSource>> OpenCifarRecords(const std::vector<std::string>& paths) {
  std::vector<RecordFile> files;
  const Variant* variant = nullptr;
  int64_t total = 0;
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
    TESSERA_ASSIGN_OR_RETURN(const Variant* own, VariantOf(*file));
    if (variant != nullptr && own != variant) {
      return absl::InvalidArgumentError(absl::StrCat(path, " has records of ", own->name, ", ", paths[0],
                                                     " of ", variant->name, "; one dataset has one format"));
    }
    variant = own;
    const int64_t count = static_cast<int64_t>(file->bytes().size()) / own->record();
    files.push_back({std::move(file), total, count});
    total += count;
  }
  if (files.empty()) return absl::NotFoundError("no file of CIFAR records was given");
  return std::make_unique<CifarRecords>(*variant, std::move(files));
}

}  // namespace tessera::worker
