#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(AtomicFile, TemporariesOfKilledProcessesAreRemoved) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "flux2_stale_temporaries";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto count = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  for (const char* name : {"a.json", "b.json"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      AtomicFile file(folder / name);
      file.write("x", 1);
      ::_exit(0);  // no destructor runs
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  }
  ASSERT_EQ(count(), 2);
  AtomicFile running(folder / "a.json");
  remove_stale_temporaries(folder / "a.json");
  EXPECT_EQ(count(), 2) << "the running one of a.json, the stale one of b.json";
  running.write("y", 1);
  running.commit();
  EXPECT_TRUE(std::filesystem::exists(folder / "a.json"));
  remove_stale_temporaries(folder / "b.json");
  EXPECT_EQ(count(), 1);
  remove_stale_temporaries(folder / "nowhere" / "b.json");
}

TEST(AtomicFile, NamesAFolderThatIsNotWritable) {
  try {
    AtomicFile file("/proc/nowhere/x.png");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::CannotWrite);
    EXPECT_NE(std::string(e.what()).find("/proc/nowhere"), std::string::npos);
  }
}

TEST(MappedFile, MapsTheBytes) {
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
