#include "services/auth/private_file.h"

#include "gtest/gtest.h"

namespace tessera::services {
namespace {

struct stat File(uid_t owner, mode_t mode) {
  struct stat info = {};
  info.st_uid = owner;
  info.st_mode = S_IFREG | mode;
  return info;
}

TEST(PrivateFile, BelongsToItsOwnerAlone) {
  EXPECT_TRUE(IsPrivate(File(1000, 0600), 1000));
  EXPECT_TRUE(IsPrivate(File(1000, 0400), 1000));
  EXPECT_FALSE(IsPrivate(File(1000, 0640), 1000));
  EXPECT_FALSE(IsPrivate(File(1000, 0604), 1000));
}

TEST(PrivateFile, OfRootMayBeReadByTheGroupOfAProcessThatIsNot) {
  EXPECT_TRUE(IsPrivate(File(0, 0440), 65532));
  EXPECT_TRUE(IsPrivate(File(0, 0640), 65532));
  EXPECT_FALSE(IsPrivate(File(0, 0640), 0));
  EXPECT_FALSE(IsPrivate(File(0, 0444), 65532));
  EXPECT_FALSE(IsPrivate(File(0, 0660), 65532));
}

}  // namespace
}  // namespace tessera::services
