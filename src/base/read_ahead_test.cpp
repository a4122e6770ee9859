#include "base/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include <fstream>

namespace flux2 {
namespace {

TEST(ReadAhead, ReadsPagesMissingFromTheCache) {
  const auto path = std::filesystem::path(testing::TempDir()) / "read_ahead.bin";
  std::ofstream(path) << std::string(5 << 20, 'x');
  const int fd = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  ::fsync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  char byte;
  iovec one{&byte, 1};
  const bool dropped = ::preadv2(fd, &one, 1, (5 << 20) - 1, RWF_NOWAIT) < 0 && errno == EAGAIN;
  ::close(fd);
  if (!dropped) GTEST_SKIP() << "this file system does not forget its files";
  const int64_t first = ReadAhead({path}).finish();
  EXPECT_GT(first, 0);
  EXPECT_LE(first, 5 << 20);
  EXPECT_EQ(ReadAhead({path}).finish(), 0) << "all of it should be in the cache now";
}

TEST(ReadAhead, ToleratesMissingFilesAndEarlyDestruction) {
  EXPECT_EQ(ReadAhead({"/no/such/file"}).finish(), 0);
  ReadAhead stopped({std::filesystem::path(testing::TempDir()) / "read_ahead.bin"});
}

}  // namespace
}  // namespace flux2
