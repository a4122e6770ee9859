#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"

namespace flux2 {
namespace {

std::filesystem::path scratch(const char* name) { return std::filesystem::path(testing::TempDir()) / name; }

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

std::string change_found() {
  try {
    check_mapped_files();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

constexpr size_t kMebibyte = 1 << 20;

std::filesystem::path large_file(const char* name) {
  const auto path = scratch(name);
  std::ofstream(path, std::ios::binary) << std::string(kMebibyte, 'x');
  return path;
}

TEST(MappedFile, ATruncatedFileIsNamedInsteadOfACrash) {
  const auto path = large_file("shrinks.bin");
  {
    const auto file = MappedFile::open(path);
    EXPECT_EQ(change_found(), "");
    std::filesystem::resize_file(path, 1000);
    // Read on several threads, as kernels do.
    std::atomic<size_t> x = 0, zero = 0;
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = t * kMebibyte / 4; i < (t + 1) * kMebibyte / 4; ++i) ++(file->bytes()[i] == std::byte{'x'} ? x : zero);
      });
    threads.clear();
    EXPECT_EQ(x, 1000u);
    EXPECT_EQ(zero, kMebibyte - 1000);
    EXPECT_NE(change_found().find("shrinks.bin changed while it was in use"), std::string::npos);
    EXPECT_NE(change_found(), "") << "as long as it is mapped";
    AtomicFile result(scratch("made-of-it.png"));
    EXPECT_THROW(result.commit(), Error);
  }
  EXPECT_NE(change_found(), "") << "once more after it was closed";
  EXPECT_EQ(change_found(), "");
  EXPECT_FALSE(std::filesystem::exists(scratch("made-of-it.png")));
}

TEST(MappedFile, AFileThatShrinksByAFewBytesIsFound) {
  const auto path = large_file("shrinks-a-little.bin");
  const auto file = MappedFile::open(path);
  std::filesystem::resize_file(path, kMebibyte - 100);  // no page is lost, so no signal comes
  EXPECT_NE(change_found(), "");
  std::filesystem::resize_file(path, kMebibyte);
  EXPECT_EQ(change_found(), "");
}

// The system reads the bytes itself and answers EFAULT.
TEST(MappedFile, WritingBytesOfATruncatedFileNamesIt) {
  const auto path = large_file("shrinks-too.bin");
  {
    const auto file = MappedFile::open(path);
    std::filesystem::resize_file(path, 0);
    AtomicFile copy(scratch("copy.bin"));
    try {
      copy.write(file->bytes());
      FAIL();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("shrinks-too.bin changed"), std::string::npos) << e.what();
    }
  }
  change_found();
}

// The sanitizers report the signal and exit with a status of their own.
bool ends_by_bus_error(int status) {
#if defined(__SANITIZE_ADDRESS__)
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
#elif defined(__SANITIZE_THREAD__)
  return WIFEXITED(status) && WEXITSTATUS(status) == 66;
#else
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
#endif
}

TEST(MappedFileDeathTest, OtherFaultsStillEndTheProgram) {
  const auto path = large_file("not-guarded.bin");
  const auto guarded = MappedFile::open(path);  // the handler is there
  EXPECT_EXIT(
      {
        const int fd = ::open(path.c_str(), O_RDONLY);
        auto* bytes = static_cast<volatile char*>(::mmap(nullptr, kMebibyte, PROT_READ, MAP_SHARED, fd, 0));
        std::filesystem::resize_file(path, 0);
        static_cast<void>(bytes[kMebibyte - 1]);
      },
      ends_by_bus_error, "");
}

}  // namespace
}  // namespace flux2
