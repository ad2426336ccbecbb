#include "worker/checkpoint/piece.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/status.h"

namespace tessera::worker {
namespace {

plan::ModelShape Shape(const std::vector<std::vector<int64_t>>& dims) {
  plan::ModelShape shape;
  for (size_t i = 0; i < dims.size(); ++i) {
    plan::Parameter parameter;
    parameter.name = "p" + std::to_string(i);
    parameter.dims = dims[i];
    shape.parameters.push_back(parameter);
  }
  return shape;
}

// What a piece holds of a parameter whose element i is i.
std::vector<float> Elements(const plan::ModelShape& shape, const Piece& piece) {
  std::vector<float> whole(shape.parameters[piece.parameter].elements());
  std::iota(whole.begin(), whole.end(), 0.0f);
  std::vector<float> part(piece.count, -1);
  EXPECT_EQ(CopyOverlap(shape, WholeParameter(shape, piece.parameter), whole.data(), piece, part.data()),
            piece.count);
  return part;
}

// Cuts a parameter along a dimension, and each slice into runs of elements.
std::vector<Piece> RandomPieces(const plan::ModelShape& shape, int parameter, std::mt19937& random) {
  const auto& dims = shape.parameters[parameter].dims;
  const int dim = static_cast<int>(random() % dims.size());
  std::vector<Piece> pieces;
  for (int64_t begin = 0; begin < dims[dim];) {
    const int64_t length = 1 + static_cast<int64_t>(random() % (dims[dim] - begin));
    const Piece slice = Slice(shape, parameter, dim, begin, length);
    for (int64_t first = 0; first < slice.count;) {
      Piece piece = slice;
      piece.first = first;
      piece.count = random() % 2 == 0 ? slice.count - first
                                      : 1 + static_cast<int64_t>(random() % (slice.count - first));
      pieces.push_back(piece);
      first += piece.count;
    }
    begin += length;
  }
  return pieces;
}

TEST(Piece, NamesAndShapesTellWhatIsInIt) {
  const plan::ModelShape shape = Shape({{4, 6}});
  EXPECT_EQ(PieceName(shape, WholeParameter(shape, 0)), "p0");
  EXPECT_EQ(PieceName(shape, Slice(shape, 0, 1, 2, 3)), "p0[1:2:3]");
  EXPECT_EQ(PieceDims(shape, Slice(shape, 0, 1, 2, 3)), (std::vector<int64_t>{4, 3}));
  Piece part = Slice(shape, 0, 1, 2, 3);
  part.first = 5;
  part.count = 2;
  EXPECT_EQ(PieceName(shape, part), "p0[1:2:3]{5:2}");
  EXPECT_EQ(PieceDims(shape, part), (std::vector<int64_t>{2}));
  // Column by column: elements 5 and 6 of columns 2 to 4 are column 3 of rows 1 and 2.
  EXPECT_EQ(Elements(shape, part), (std::vector<float>{9, 15}));
  EXPECT_EQ(Elements(shape, Slice(shape, 0, 1, 4, 2)), (std::vector<float>{4, 5, 10, 11, 16, 17, 22, 23}));
}

TEST(Piece, AnySetIsFilledFromAnyOtherThatCoversIt) {
  std::mt19937 random(7);
  const plan::ModelShape shape = Shape({{12}, {5, 8}, {3, 4, 5}, {2, 3, 3, 2}, {1, 1}});
  for (int round = 0; round < 300; ++round) {
    const int parameter = round % 5;
    const auto stored = RandomPieces(shape, parameter, random),
               wanted = RandomPieces(shape, parameter, random);
    for (const Piece& to : wanted) {
      std::vector<float> data(to.count, -1);
      int64_t copied = 0;
      for (const Piece& from : stored) {
        copied += CopyOverlap(shape, from, Elements(shape, from).data(), to, data.data());
      }
      ASSERT_EQ(copied, to.count);
      ASSERT_EQ(data, Elements(shape, to));
    }
  }
}

TEST(Piece, CoverageFindsWhatIsMissingTwiceThereOrOutside) {
  std::mt19937 random(3);
  const plan::ModelShape shape = Shape({{6, 4}, {5}});
  for (int round = 0; round < 100; ++round) {
    std::vector<Piece> pieces = RandomPieces(shape, 0, random);
    for (const Piece& piece : RandomPieces(shape, 1, random)) pieces.push_back(piece);
    EXPECT_OK(CheckCoverage(shape, pieces));
    std::vector<Piece> twice = pieces;
    twice.push_back(pieces[random() % pieces.size()]);
    EXPECT_TRUE(absl::IsDataLoss(CheckCoverage(shape, twice)));
    std::vector<Piece> less = pieces;
    less.erase(less.begin() + static_cast<int64_t>(random() % less.size()));
    EXPECT_TRUE(absl::IsDataLoss(CheckCoverage(shape, less)));
  }
  for (const Piece& outside : {Piece{2, 0, 0, 1, 0, 1}, Piece{0, 2, 0, 1, 0, 1}, Piece{0, 0, 5, 2, 0, 8},
                               Piece{0, 0, -1, 1, 0, 4}, Piece{0, 0, 0, 1, 2, 3}, Piece{-1, 0, 0, 1, 0, 1},
                               Piece{0, 0, 0, INT64_MAX, 0, 1}, Piece{1, 0, 0, 5, 1, INT64_MAX}}) {
    EXPECT_FALSE(IsValid(shape, outside));
    EXPECT_TRUE(absl::IsDataLoss(CheckCoverage(shape, {outside})));
  }
}

}  // namespace
}  // namespace tessera::worker
