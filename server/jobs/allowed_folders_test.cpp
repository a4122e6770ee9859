#include "server/jobs/allowed_folders.h"

#include <gtest/gtest.h>

#include "server/http/errors.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class AllowedFoldersTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "allowed" / "inner");
    fs::create_directories(root_ / "allowed-not");
    fs::create_directory_symlink(root_ / "allowed-not", root_ / "allowed" / "link");
  }
  std::string refusal(const fs::path& path) const {
    try {
      allowed().checked(path, "path");
    } catch (const HttpError& e) {
      return e.what();
    }
    return "";
  }
  AllowedFolders allowed() const { return AllowedFolders({root_ / "allowed"}); }

  fs::path root_ = server_test_folder();
};

TEST_F(AllowedFoldersTest, KnowsWhatLiesBelow) {
  EXPECT_TRUE(allowed().contains(root_ / "allowed"));
  EXPECT_TRUE(allowed().contains(root_ / "allowed" / "inner" / "new.png"));
  EXPECT_FALSE(allowed().contains(root_ / "allowed-not"));
  EXPECT_FALSE(allowed().contains(root_ / "allowed" / ".." / "allowed-not"));
  EXPECT_FALSE(allowed().contains(root_ / "allowed" / "link" / "x.png")) << "a link leads out";
  EXPECT_FALSE(AllowedFolders().contains("/"));
}

TEST_F(AllowedFoldersTest, RefusesAlikeWhetherAPathExistsOrNot) {
  const std::string there = refusal(root_ / "allowed-not");
  EXPECT_FALSE(there.empty());
  EXPECT_EQ(refusal(root_ / "nothing"), there);
  EXPECT_EQ(refusal(""), there);
  EXPECT_EQ(refusal(root_ / "allowed" / "inner"), "");
}

}  // namespace
}  // namespace flux2
