#include "worker/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/status.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("safetensors-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "a.safetensors";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteRaw(const std::string& header, const std::string& data) {
    std::ofstream out(path_, std::ios::binary);
    const uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << header << data;
  }
  absl::Status OpenStatus() { return SafetensorsFile::Open(path_).status(); }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(Safetensors, AFullDiskIsNoLackOfMemoryNorALostPeer) {
  const absl::Status status = WriteSafetensors("/dev/full", {{"x", at::ones({8})}});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("/dev/full: No space left"), std::string::npos) << status;
}

TEST_F(Safetensors, ReadsBackEveryTypeAndTheMetadata) {
  const at::Tensor f = at::randn({2, 3}), scalar = at::scalar_tensor(7.5), empty = at::empty({0, 4});
  const at::Tensor i = at::arange(5, at::kLong), j = at::arange(3, at::kInt), b = at::arange(9, at::kByte);
  const at::Tensor half = at::randn({4}).to(at::kHalf), brain = at::randn({4}).to(at::kBFloat16);
  ASSERT_OK(WriteSafetensors(path_,
                             {{"f", f},
                              {"b", b},
                              {"scalar", scalar},
                              {"empty", empty},
                              {"i", i},
                              {"j", j},
                              {"half", half},
                              {"brain", brain},
                              {"transposed", f.t()}},
                             {{"format", "pt"}}));
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_OK(file);
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  EXPECT_EQ((*file)->names().size(), 9u);
  EXPECT_TRUE((*file)->Has("f"));
  EXPECT_EQ((*file)->Dims("f"), (std::vector<int64_t>{2, 3}));
  for (const auto& [name, want] :
       std::vector<std::pair<std::string, at::Tensor>>{{"f", f},
                                                       {"b", b},
                                                       {"scalar", scalar},
                                                       {"empty", empty},
                                                       {"i", i},
                                                       {"j", j},
                                                       {"half", half.to(at::kFloat)},
                                                       {"brain", brain.to(at::kFloat)},
                                                       {"transposed", f.t()}}) {
    const auto got = (*file)->Read(name);
    ASSERT_OK(got) << name << got.status();
    EXPECT_EQ(got->scalar_type(), want.scalar_type()) << name;
    EXPECT_TRUE(at::equal(*got, want)) << name;
  }
}

TEST_F(Safetensors, ATensorReadOutlivesItsFile) {
  ASSERT_OK(WriteSafetensors(path_, {{"a", at::ones({1000})}}));
  auto file = *SafetensorsFile::Open(path_);
  const at::Tensor a = *file->Read("a");
  file.reset();
  EXPECT_EQ(a.sum().item<float>(), 1000);
}

TEST_F(Safetensors, AMissingNameListsSomeThereAre) {
  ASSERT_OK(WriteSafetensors(path_, {{"weight", at::ones({1})}}));
  const auto got = (*SafetensorsFile::Open(path_))->Read("wait");
  EXPECT_EQ(got.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(got.status().message()), HasSubstr("weight"));
}

TEST_F(Safetensors, WriterRefusesWhatWasNotAnnounced) {
  auto writer = *SafetensorsWriter::Create(path_, {{"a", at::kFloat, {2}}, {"b", at::kFloat, {3}}});
  EXPECT_EQ(writer->Append(at::ones({3})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->Append(at::ones({2}, at::kLong)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->Append(at::Tensor()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_OK(writer->Append(at::ones({2})));
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(writer->Append(at::ones({3})));
  EXPECT_EQ(writer->Append(at::ones({3})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_OK(writer->Finish());
  EXPECT_OK(OpenStatus());
}

TEST_F(Safetensors, WriterRefusesTheSameNameTwiceAndTypesItDoesNotStore) {
  EXPECT_FALSE(SafetensorsWriter::Create(path_, {{"a", at::kFloat, {2}}, {"a", at::kFloat, {3}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(path_, {{"a", at::kComplexFloat, {2}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(path_, {{"__metadata__", at::kFloat, {2}}}).ok());
}

TEST_F(Safetensors, ATruncatedFileIsDataLossThatNamesIt) {
  ASSERT_OK(WriteSafetensors(path_, {{"a", at::ones({100})}}));
  const auto size = std::filesystem::file_size(path_);
  for (uintmax_t keep : {size - 1, size - 400, uintmax_t{20}, uintmax_t{5}, uintmax_t{0}}) {
    std::filesystem::resize_file(path_, keep);
    const absl::Status status = OpenStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << keep;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  }
}

TEST_F(Safetensors, ADamagedHeaderIsRefused) {
  const std::string data(16, 'x');
  for (const char* header : {
           "not json",
           "[1, 2]",
           R"({"a": 3})",
           R"({"a": {"dtype": "F32", "shape": [4]}})",
           R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 20]}})",
           R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [8, 4]}})",
           R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 16]}})",
           R"({"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}})",
           R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 16]}})",
           R"({"a": {"dtype": "F32", "shape": "4", "data_offsets": [0, 16]}})",
       }) {
    WriteRaw(header, data);
    EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kDataLoss) << header;
  }
  WriteRaw(R"({"a": {"dtype": "F8_E4M3", "shape": [16], "data_offsets": [0, 16]}})", data);
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kUnimplemented);
  WriteRaw(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})", data);
  EXPECT_OK(OpenStatus());
}

TEST_F(Safetensors, AMissingFileOrFolderSaysSo) {
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(WriteSafetensors(folder_ / "none" / "a", {{"a", at::ones({1})}}).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera::worker
