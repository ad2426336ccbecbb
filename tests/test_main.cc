// Of every test program: a folder for temporary files of this process alone, as ctest runs the cases of a
// program side by side, and so may two builds on one machine.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <csignal>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::signal(SIGPIPE, SIG_IGN);  // as in the worker and the daemon: a peer that ends closes first
  if (::getenv("TEST_TMPDIR") != nullptr) return RUN_ALL_TESTS();  // a child of a test, or as asked
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    ::perror(folder.c_str());
    return 1;
  }
  ::setenv("TEST_TMPDIR", folder.c_str(), 1);
  ::setenv("TMPDIR", folder.c_str(), 1);
  const int failed = RUN_ALL_TESTS();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return failed;
}
