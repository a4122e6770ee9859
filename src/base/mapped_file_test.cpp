#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/atomic_file.h"
#include "base/error.h"

namespace flux2 {
namespace {

std::filesystem::path scratch(const char* name) { return std::filesystem::path(testing::TempDir()) / name; }

TEST(AtomicFile, AppearsOnlyOnCommit) {
  const auto path = scratch("atomic/one.bin");
  std::filesystem::remove_all(path.parent_path());
  {
    AtomicFile file(path);
    file.write("abc", 3);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(path.parent_path()));
  AtomicFile file(path);
  file.write("abcd", 4);
  file.commit();
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
}

TEST(AtomicFile, SaysWhichFolderCannotBeWritten) {
  try {
    AtomicFile file("/proc/nowhere/x.png");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::CannotWrite);
    EXPECT_NE(std::string(e.what()).find("/proc/nowhere"), std::string::npos);
  }
}

TEST(MappedFile, ShowsTheBytes) {
  const auto path = scratch("mapped.bin");
  std::ofstream(path) << "hello";
  auto file = MappedFile::open(path);
  ASSERT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(std::memcmp(file->bytes().data(), "hello", 5), 0);
  file->will_need(0, 100);
  file->drop(0, 5);
  EXPECT_EQ(std::memcmp(file->bytes().data(), "hello", 5), 0);
}

TEST(MappedFile, EmptyAndMissingFiles) {
  const auto path = scratch("empty.bin");
  std::ofstream(path).flush();
  EXPECT_TRUE(MappedFile::open(path)->bytes().empty());
  try {
    MappedFile::open(scratch("absent.bin"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
  }
  EXPECT_THROW(MappedFile::open("/"), Error);
}

}  // namespace
}  // namespace flux2
