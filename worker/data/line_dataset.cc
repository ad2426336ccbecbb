#include "worker/data/line_dataset.h"

#include <glob.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/split_mix.h"
#include "base/status_macros.h"
#include "worker/data/mapped_file.h"
#include "worker/data/word_piece.h"

namespace tessera::worker {
namespace {

struct Line {
  int32_t file = 0;
  int64_t offset = 0, size = 0;
};

double Uniform(uint64_t x) { return static_cast<double>(SplitMix64(x) >> 11) * 0x1p-53; }

std::vector<Line> LinesOf(const MappedFile& file, int32_t index) {
  std::vector<Line> lines;
  const auto bytes = file.bytes();
  for (size_t start = 0; start < bytes.size();) {
    const void* found = std::memchr(bytes.data() + start, '\n', bytes.size() - start);
    const size_t end = found != nullptr
                           ? static_cast<size_t>(static_cast<const uint8_t*>(found) - bytes.data())
                           : bytes.size();
    size_t size = end - start;
    if (size > 0 && bytes[start + size - 1] == '\r') --size;
    if (size > 0) lines.push_back({index, static_cast<int64_t>(start), static_cast<int64_t>(size)});
    start = end + 1;
  }
  return lines;
}

class LineDataset final : public Dataset {
 public:
  LineDataset(std::vector<std::unique_ptr<MappedFile>> files, std::vector<Line> lines, TextCodec codec,
              int64_t length, Task task)
      : files_(std::move(files)),
        lines_(std::move(lines)),
        codec_(std::move(codec)),
        length_(length),
        task_(task) {}

  int64_t samples() const override { return static_cast<int64_t>(lines_.size()); }

  absl::Status Check(const ModelInput& input) const override {
    if (input.task != Task::kMaskedToken && input.task != Task::kTextClass) {
      return absl::InvalidArgumentError("lines train models that tell masked tokens or classify texts");
    }
    if (codec_.vocab_size > input.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ", codec_.vocab_size,
                                                     " tokens, the model's vocabulary ", input.vocab_size));
    }
    if (input.max_length > 0 && length_ > input.max_length) {
      return absl::InvalidArgumentError(absl::StrCat("data.sequence_length is ", length_, ", the model has ",
                                                     input.max_length, " positions"));
    }
    for (const Line& line : lines_) {
      if (task_ != Task::kTextClass) break;
      const std::string_view text = Text(line);
      int64_t label = -1;
      if (!absl::SimpleAtoi(std::string(text.substr(0, text.find('\t'))), &label) ||
          text.find('\t') == text.npos || label < 0 || label >= input.classes) {
        return absl::InvalidArgumentError(
            absl::StrCat(files_[line.file]->path(), ": line at offset ", line.offset, " begins '",
                         std::string(text.substr(0, 20)), "'; it must be a label below ", input.classes,
                         ", a tabulator and a text"));
      }
    }
    Release();
    return absl::OkStatus();
  }

  absl::StatusOr<Batch> Read(std::span<const Sample> samples) const override {
    std::vector<std::string> texts;
    at::Tensor labels = at::empty({static_cast<int64_t>(samples.size())}, at::kLong);
    for (size_t row = 0; row < samples.size(); ++row) {
      std::string_view text = Text(lines_[samples[row].index]);
      if (task_ == Task::kTextClass) {
        const size_t tabulator = text.find('\t');
        int64_t label = 0;
        if (!absl::SimpleAtoi(std::string(text.substr(0, tabulator)), &label)) label = kIgnoredTarget;
        labels.mutable_data_ptr<int64_t>()[row] = label;
        text.remove_prefix(tabulator == text.npos ? 0 : tabulator + 1);
      }
      texts.emplace_back(text);
    }
    Release();
    Batch batch = EncodeTexts(codec_, texts, length_);
    if (task_ == Task::kTextClass) {
      batch.targets = labels;
      batch.target_count = labels.numel();
    } else {
      Mask(samples, &batch);
    }
    return batch;
  }

 private:
  void Release() const {
    for (const auto& file : files_) file->Release();
  }
  std::string_view Text(const Line& line) const {
    return {reinterpret_cast<const char*>(files_[line.file]->bytes().data()) + line.offset,
            static_cast<size_t>(line.size)};
  }

  void Mask(std::span<const Sample> samples, Batch* batch) const {
    batch->targets = at::full_like(batch->inputs, kIgnoredTarget);
    const int64_t length = batch->inputs.size(1);
    for (size_t row = 0; row < samples.size(); ++row) {
      const Sample& sample = samples[row];
      const uint64_t key =
          sample.draw != 0 ? sample.draw : SplitMix64(static_cast<uint64_t>(sample.index) + 1);
      int64_t* tokens = batch->inputs.mutable_data_ptr<int64_t>() + static_cast<int64_t>(row) * length;
      int64_t* targets = batch->targets.mutable_data_ptr<int64_t>() + static_cast<int64_t>(row) * length;
      int64_t told = 0, last = 0;
      const auto mask_at = [&](int64_t t, double choice) {
        targets[t] = tokens[t];
        ++told;
        if (choice < 0.8) {
          tokens[t] = codec_.mask;
        } else if (choice < 0.9) {
          tokens[t] =
              static_cast<int64_t>(SplitMix64(key + 3 * t) % static_cast<uint64_t>(codec_.vocab_size));
        }
      };
      for (int64_t t = 1; t < length && tokens[t] != codec_.end; ++t) {
        last = t;
        if (Uniform(key + 3 * t + 1) < 0.15) mask_at(t, Uniform(key + 3 * t + 2));
      }
      if (told == 0 && last > 0)
        mask_at(1 + static_cast<int64_t>(SplitMix64(key) % static_cast<uint64_t>(last)), 0);
      batch->target_count += told;
    }
  }

  const std::vector<std::unique_ptr<MappedFile>> files_;
  const std::vector<Line> lines_;
  const TextCodec codec_;
  const int64_t length_;
  const Task task_;
};

}  // namespace

absl::StatusOr<TextCodec> OpenTextCodec(const std::string& folder) {
  auto opened = folder.empty() ? absl::NotFoundError("no folder") : WordPiece::Open(folder);
  if (absl::IsNotFound(opened.status())) {
    const auto bytes = [](std::string_view text) {
      const auto* data = reinterpret_cast<const uint8_t*>(text.data());
      return std::vector<int32_t>(data, data + text.size());
    };
    return TextCodec{
        .encode = bytes, .vocab_size = 260, .begin = 256, .end = 257, .padding = 258, .mask = 259};
  }
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<const WordPiece> pieces = *std::move(opened);
  return TextCodec{.encode = [pieces](std::string_view text) { return pieces->Encode(text); },
                   .vocab_size = pieces->vocab_size(),
                   .begin = pieces->classify(),
                   .end = pieces->separator(),
                   .padding = pieces->padding(),
                   .mask = pieces->mask()};
}

Batch EncodeTexts(const TextCodec& codec, const std::vector<std::string>& texts, int64_t length) {
  std::vector<std::vector<int32_t>> rows;
  size_t longest = 2;
  for (const std::string& text : texts) {
    std::vector<int32_t> ids = codec.encode(text);
    ids.resize(std::min(ids.size(), static_cast<size_t>(std::max<int64_t>(0, length - 2))));
    ids.insert(ids.begin(), codec.begin);
    ids.push_back(codec.end);
    longest = std::max(longest, ids.size());
    rows.push_back(std::move(ids));
  }
  const auto count = static_cast<int64_t>(rows.size()), width = static_cast<int64_t>(longest);
  Batch batch{.inputs = at::full({count, width}, codec.padding, at::kLong),
              .padding = at::ones({count, width}, at::kBool)};
  for (int64_t row = 0; row < count; ++row) {
    const auto size = static_cast<int64_t>(rows[row].size());
    std::copy(rows[row].begin(), rows[row].end(), batch.inputs.mutable_data_ptr<int64_t>() + row * width);
    batch.padding[row].narrow(0, 0, size).fill_(false);
  }
  return batch;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenLines(const std::string& pattern, TextCodec codec,
                                                   int64_t length, Task task) {
  if (length < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.sequence_length is ", length, "; begin, end and one token of a text need 3"));
  }
  glob_t found;
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (paths.empty()) return absl::NotFoundError(absl::StrCat("no file of lines matches ", pattern));
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<Line> lines;
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
    const auto own = LinesOf(*file, static_cast<int32_t>(files.size()));
    file->Release();
    lines.insert(lines.end(), own.begin(), own.end());
    files.push_back(std::move(file));
  }
  if (lines.empty()) return absl::InvalidArgumentError(absl::StrCat(pattern, ": holds no line of text"));
  return std::make_unique<LineDataset>(std::move(files), std::move(lines), std::move(codec), length, task);
}

}  // namespace tessera::worker
