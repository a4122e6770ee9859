#include "base/own_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/resumable_file.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

class OwnFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "flux2-own-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ / "victim") << "precious";
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(OwnFile, LinksAreNotFollowed) {
  fs::create_symlink("victim", folder_ / "link");
  fs::create_symlink("not yet", folder_ / "dangling");
  fs::create_hard_link(folder_ / "victim", folder_ / "hard");
  fs::create_directory(folder_ / "folder");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { open_own_file(folder_ / "link"); }), HasSubstr("symbolic link"));
  EXPECT_THAT(message_of([&] { open_own_file(folder_ / "dangling"); }), HasSubstr("symbolic link"));
  EXPECT_FALSE(fs::exists(folder_ / "not yet"));
  EXPECT_THAT(message_of([&] { open_own_file(folder_ / "hard"); }), HasSubstr("another name"));
  EXPECT_THAT(message_of([&] { open_own_file(folder_ / "folder"); }), HasSubstr("cannot write"));
  EXPECT_THAT(message_of([&] { open_own_file(folder_ / "pipe"); }), HasSubstr("not a regular file"));
}

TEST_F(OwnFile, ResumableFileDoesNotWriteThroughLinks) {
  fs::create_symlink("victim", folder_ / ".model.gguf.partial");
  EXPECT_THAT(message_of([&] { ResumableFile(folder_ / "model.gguf", "x"); }), HasSubstr("symbolic link"));
  EXPECT_EQ(read_text_file(folder_ / "victim"), "precious");
}

TEST_F(OwnFile, ResumableFileRefusesAnExchangedPartialFile) {
  ResumableFile file(folder_ / "model.gguf", "x");
  fs::remove(folder_ / ".model.gguf.partial");
  std::ofstream(folder_ / ".model.gguf.partial") << "theirs";
  EXPECT_THAT(message_of([&] { file.commit(); }), HasSubstr("another process replaced"));
  EXPECT_FALSE(fs::exists(folder_ / "model.gguf"));
}

TEST_F(OwnFile, UmaskDecidesWhoMayReadAPartialFile) {
  const mode_t before = ::umask(0077);
  { const ResumableFile file(folder_ / "model.gguf", "x"); }
  ::umask(before);
  struct stat state {};
  ASSERT_EQ(::stat((folder_ / ".model.gguf.partial").c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
}

TEST_F(OwnFile, ReadersRefuseWhatIsNotARegularFile) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {folder_ / "pipe", folder_, fs::path("/dev/zero")}) {
    EXPECT_THAT(message_of([&] { MappedFile::open(path); }), HasSubstr("is not a regular file")) << path;
    EXPECT_THAT(message_of([&] { sha256_of_file(path); }), HasSubstr("is not a regular file")) << path;
  }
}

TEST_F(OwnFile, FreeNamesOnly) {
  std::ofstream(folder_ / "a") << "a";
  EXPECT_FALSE(rename_to_free_name(folder_ / "a", folder_ / "victim"));
  EXPECT_EQ(read_text_file(folder_ / "victim"), "precious");
  EXPECT_TRUE(rename_to_free_name(folder_ / "a", folder_ / "b"));
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  EXPECT_THROW(rename_to_free_name(folder_ / "a", folder_ / "c"), Error);
}

}  // namespace
}  // namespace flux2
