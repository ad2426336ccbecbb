#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/data/image_source.h"
#include "worker/data/mapped_file.h"

#define STB_IMAGE_IMPLEMENTATION
#define STBI_NO_STDIO
#include <stb/stb_image.h>
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#include <stb/stb_image_resize.h>

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string path;
  int64_t label = 0;
};

bool IsImage(const fs::path& path) {
  const std::string extension = absl::AsciiStrToLower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".bmp";
}

class ImageFolder final : public ImageSource {
 public:
  ImageFolder(std::vector<Entry> entries, int64_t size) : entries_(std::move(entries)) {
    // Mean and deviation of ImageNet.
    format_ = {3, size, size, {0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};
  }

  const ImageFormat& format() const override { return format_; }
  int64_t images() const override { return static_cast<int64_t>(entries_.size()); }
  int64_t label(int64_t image) const override { return entries_[image].label; }
  std::string WhereLabel(int64_t image) const override {
    return absl::StrCat(entries_[image].path, ": number of its folder");
  }

  // The middle square, scaled.
  absl::Status Read(int64_t image, std::span<uint8_t> pixels) const override {
    const std::string& path = entries_[image].path;
    TESSERA_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
    int width = 0, height = 0, channels = 0;
    const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> decoded(
        stbi_load_from_memory(file->bytes().data(), static_cast<int>(file->bytes().size()), &width, &height,
                              &channels, 3),
        &stbi_image_free);
    if (decoded == nullptr) {
      return absl::DataLossError(absl::StrCat(path, ": no image that can be read: ", stbi_failure_reason()));
    }
    const int side = std::min(width, height), size = static_cast<int>(format_.height);
    const stbi_uc* corner =
        decoded.get() + 3 * (static_cast<int64_t>(height - side) / 2 * width + (width - side) / 2);
    std::vector<uint8_t> scaled(size_t{3} * size * size);
    if (stbir_resize_uint8(corner, side, side, 3 * width, scaled.data(), size, size, 0, 3) == 0) {
      return absl::ResourceExhaustedError(absl::StrCat(path, ": cannot be scaled to ", size, " x ", size));
    }
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < size * size; ++i) pixels[c * size * size + i] = scaled[3 * i + c];
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<Entry> entries_;
  ImageFormat format_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageFolder(const std::string& folder, int64_t size) {
  std::vector<std::string> classes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory()) classes.push_back(entry.path().filename());
  }
  if (error) return absl::NotFoundError(absl::StrCat("cannot list ", folder, ": ", error.message()));
  std::sort(classes.begin(), classes.end());
  std::vector<Entry> entries;
  for (size_t label = 0; label < classes.size(); ++label) {
    for (const auto& entry : fs::recursive_directory_iterator(folder + "/" + classes[label], error)) {
      if (IsImage(entry.path())) entries.push_back({entry.path(), static_cast<int64_t>(label)});
    }
  }
  if (entries.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": no .jpg, .jpeg, .png or .bmp in folders named after their classes"));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.path < b.path; });
  return std::make_unique<ImageFolder>(std::move(entries), size);
}

}  // namespace tessera::worker
