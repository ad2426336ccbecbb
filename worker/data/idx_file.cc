#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/data/image_source.h"
#include "worker/data/mapped_file.h"

namespace tessera::worker {
namespace {

// Magic numbers of unsigned bytes in three dimensions and in one.
constexpr uint32_t kImages = 0x803, kLabels = 0x801;

struct IdxBytes {
  std::unique_ptr<MappedFile> file;
  std::vector<int64_t> dims;
  int64_t header = 0;
};

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

absl::StatusOr<IdxBytes> Open(const std::string& path, uint32_t magic) {
  TESSERA_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  const size_t rank = magic & 0xff, header = 4 + 4 * rank;
  if (bytes.size() < header) {
    return absl::DataLossError(absl::StrCat(path, ": ", bytes.size(), " bytes, an IDX header of ", rank,
                                            " dimensions has ", header));
  }
  if (BigEndian(bytes.data()) != magic) {
    return absl::DataLossError(absl::StrCat(path, ": magic ", BigEndian(bytes.data()),
                                            " at offset 0, an IDX file of ",
                                            magic == kImages ? "images" : "labels", " has ", magic));
  }
  IdxBytes idx{.header = static_cast<int64_t>(header)};
  int64_t expected = idx.header;
  int64_t elements = 1;
  for (size_t d = 0; d < rank; ++d) {
    idx.dims.push_back(BigEndian(bytes.data() + 4 + 4 * d));
    if (idx.dims.back() == 0 || idx.dims.back() > (int64_t{1} << 40) / elements) {
      return absl::DataLossError(
          absl::StrCat(path, ": dimension ", idx.dims.back(), " at offset ", 4 + 4 * d));
    }
    elements *= idx.dims.back();
  }
  expected += elements;
  if (static_cast<int64_t>(bytes.size()) != expected) {
    return absl::DataLossError(absl::StrCat(path, ": its header asks for ", expected, " bytes, ",
                                            bytes.size(), " found: ends at offset ", bytes.size()));
  }
  idx.file = std::move(file);
  return idx;
}

class IdxImages final : public ImageSource {
 public:
  IdxImages(IdxBytes images, IdxBytes labels) : images_(std::move(images)), labels_(std::move(labels)) {
    format_ = {.channels = 1,
               .height = images_.dims[1],
               .width = images_.dims[2],
               .mean = {0.1307F},
               .deviation = {0.3081F},
               .mirrored = false};
  }

  const ImageFormat& format() const override { return format_; }
  int64_t images() const override { return images_.dims[0]; }
  int64_t label(int64_t image) const override { return labels_.file->bytes()[labels_.header + image]; }
  std::string WhereLabel(int64_t image) const override {
    return absl::StrCat(labels_.file->path(), ": label at offset ", labels_.header + image);
  }
  absl::Status Read(int64_t image, std::span<uint8_t> pixels) const override {
    const int64_t size = format_.height * format_.width;
    TESSERA_CHECK(image >= 0 && image < images() && static_cast<int64_t>(pixels.size()) == size);
    std::copy_n(images_.file->bytes().data() + images_.header + image * size, size, pixels.data());
    return absl::OkStatus();
  }
  void Release() const override { images_.file->Release(); }

 private:
  const IdxBytes images_, labels_;
  ImageFormat format_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImageSource>> OpenIdxFile(const std::string& path) {
  const size_t slash = path.rfind('/') + 1;
  const std::string labels_path =
      path.substr(0, slash) +
      absl::StrReplaceAll(path.substr(slash), {{"images", "labels"}, {"idx3", "idx1"}});
  if (labels_path == path) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its name has no 'images' from which that of the labels could be made"));
  }
  TESSERA_ASSIGN_OR_RETURN(IdxBytes images, Open(path, kImages));
  TESSERA_ASSIGN_OR_RETURN(IdxBytes labels, Open(labels_path, kLabels));
  if (images.dims[0] != labels.dims[0]) {
    return absl::DataLossError(
        absl::StrCat(labels_path, ": ", labels.dims[0], " labels for ", images.dims[0], " images in ", path));
  }
  return std::make_unique<IdxImages>(std::move(images), std::move(labels));
}

}  // namespace tessera::worker
