// Real images for tests: scikit-learn's handwritten digits, 8 x 8, also as records of CIFAR-10.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera::worker {

inline std::string DigitsFolder() { return std::string(std::getenv("TESSERA_GOLDEN")) + "/digits"; }

inline std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Each pixel four times as wide and high, in three equal colours. Writes FOLDER/data_batch_1.bin,
// test_batch.bin.
inline void WriteDigitsAsCifar(const std::string& folder) {
  for (const auto& [part, name] : {std::pair{"train", "data_batch_1.bin"}, {"t10k", "test_batch.bin"}}) {
    const std::string images = FileBytes(DigitsFolder() + "/" + part + "-images-idx3-ubyte").substr(16),
                      labels = FileBytes(DigitsFolder() + "/" + part + "-labels-idx1-ubyte").substr(8);
    std::ofstream out(folder + "/" + name, std::ios::binary);
    for (size_t i = 0; i < labels.size(); ++i) {
      out.put(labels[i]);
      for (int p = 0; p < 3 * 32 * 32; ++p) {
        const int y = p % 1024 / 32 / 4, x = p % 32 / 4;
        out.put(images[i * 64 + static_cast<size_t>(8 * y + x)]);
      }
    }
  }
}

}  // namespace tessera::worker
