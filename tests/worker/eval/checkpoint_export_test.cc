#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/status.h"
#include "worker/checkpoint/durable_file.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/text_file.h"
#include "worker/eval/export_model.h"
#include "worker/eval/exported_model.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

// A checkpoint of a small model of which half the workers held block 1.
class CheckpointExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("export-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "step-00000001/units");
    model_ = *MakeModel({.preset = "llama-1m"});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ / name; }

  at::Tensor Value(size_t parameter) const {
    at::Tensor tensor = at::empty(model_->shape().parameters[parameter].dims);
    model_->Initialize(static_cast<int>(parameter), 5, tensor);
    return tensor;
  }

  void WriteCheckpoint(const std::string& job) {
    const plan::ModelShape& shape = model_->shape();
    Manifest manifest;
    manifest.info.job = job;
    manifest.model_config = model_->HuggingFaceConfig();
    manifest.workers = 2;
    manifest.shape_fingerprint = shape.Fingerprint();
    for (int block = plan::kNoBlock; block < static_cast<int>(shape.blocks.size()); ++block) {
      ManifestUnit unit;
      unit.name = absl::StrCat("unit-", block + 1);
      unit.block = block;
      unit.always_on = block != 1;
      unit.holder_share = block == 1 ? 0.5 : 1;
      ManifestFile file;
      file.unit = block + 1;
      file.file = absl::StrCat("units/", unit.name, ".safetensors");
      std::vector<std::pair<std::string, at::Tensor>> tensors;
      for (size_t i = 0; i < shape.parameters.size(); ++i) {
        if (shape.parameters[i].block != block) continue;
        tensors.emplace_back(shape.parameters[i].name, Value(i));
        file.pieces.push_back(WholeParameter(shape, static_cast<int>(i)));
      }
      ASSERT_OK(WriteSafetensors(Path("step-00000001/" + file.file), tensors));
      file.digest = *Digest(Path("step-00000001/" + file.file));
      manifest.units.push_back(unit);
      manifest.files.push_back(file);
    }
    ASSERT_OK(WriteTextFile(Path("step-00000001/manifest.json"), ToJson(manifest)));
  }

  absl::Status Export(std::optional<bool> scale = std::nullopt) {
    return ExportCheckpoint({.checkpoint = Path("step-00000001"),
                             .folder = Path("out"),
                             .overwrite = true,
                             .evaluation_scale = scale});
  }

  // By what the outputs of block 1's branches were multiplied; everything else must be untouched.
  double ScaleOfExport() {
    const auto exported = *OpenExportedModel(Path("out"));
    const std::vector<int> outputs = model_->BranchOutputs(1);
    double scale = 0;
    for (size_t i = 0; i < exported.weights.size(); ++i) {
      const bool output = std::find(outputs.begin(), outputs.end(), static_cast<int>(i)) != outputs.end();
      if (output) {
        scale = exported.weights[i].flatten()[7].item<double>() / Value(i).flatten()[7].item<double>();
      } else {
        EXPECT_TRUE(at::equal(exported.weights[i], Value(i))) << model_->shape().parameters[i].name;
      }
    }
    return scale;
  }

  std::filesystem::path folder_;
  std::unique_ptr<Model> model_;
};

TEST_F(CheckpointExportTest, TheResidualScaleIsThatOfTheJobInTheCheckpoint) {
  for (const auto& [residual, scale] : {std::pair("RESIDUAL_SCALE_EVALUATION", 0.5),
                                        {"RESIDUAL_SCALE_NONE", 1.0},
                                        {"RESIDUAL_SCALE_TRAIN_INVERSE", 1.0}}) {
    WriteCheckpoint(absl::StrCat("{\"subnetwork\": {\"residualScale\": \"", residual, "\"}}"));
    const absl::Status status = Export();
    ASSERT_OK(status);
    EXPECT_EQ(ScaleOfExport(), scale) << residual;
  }
}

TEST_F(CheckpointExportTest, AScaleThatIsGivenWinsOverTheJobs) {
  WriteCheckpoint("{\"subnetwork\": {\"residualScale\": \"RESIDUAL_SCALE_NONE\"}}");
  ASSERT_OK(Export(true));
  EXPECT_EQ(ScaleOfExport(), 0.5);
}

TEST_F(CheckpointExportTest, WithoutAJobTheScaleIsAskedForRatherThanGuessed) {
  WriteCheckpoint("of another program");
  const absl::Status status = Export();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--residual-scale"));
  ASSERT_OK(Export(false));
  EXPECT_EQ(ScaleOfExport(), 1);
}

TEST_F(CheckpointExportTest, AMissingUnitIsNamed) {
  WriteCheckpoint("{}");
  std::filesystem::remove(Path("step-00000001/units/unit-2.safetensors"));
  const absl::Status status = Export();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("unit-2.safetensors"));
}

}  // namespace
}  // namespace tessera::worker
