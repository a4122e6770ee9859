#include "train/log/append_file.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/json.h"
#include "train/log/test_folder.h"
#include "train/log/text_lines.h"

namespace flux2 {
namespace {

using ::testing::ElementsAre;

// As long as it lives, no file of this process may grow beyond a size: the nearest thing to a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(AppendFile, AFailedAppendLeavesTheFileAsItWas) {
  const TestFolder folder;
  AppendFile file(folder / "new" / "log", AppendFile::Start::Empty);
  file.append("first\n");
  {
    const FullDisk full(10);
    EXPECT_THROW(file.append("does not fit\n"), Error);
  }
  EXPECT_EQ(read_text_file(file.path()), "first\n");
  file.append("second\n");
  EXPECT_EQ(read_text_file(file.path()), "first\nsecond\n");
  AppendFile(file.path(), AppendFile::Start::Continue).append("third\n");
  EXPECT_EQ(read_text_file(file.path()), "first\nsecond\nthird\n");
  AppendFile(file.path(), AppendFile::Start::Empty).append("x");
  EXPECT_EQ(read_text_file(file.path()), "x");
}

TEST(AppendFile, LinesAreReadWithoutATornEnd) {
  const TestFolder folder;
  AppendFile file(folder / "log", AppendFile::Start::Empty);
  const std::string large((size_t{16} << 20) + 1, 'x'), allowed(100'000, 'y');
  file.append("a\n\nb\n" + large + "\n" + allowed + "\ntorn");
  std::vector<std::string> lines;
  read_lines(file.path(), [&](std::string_view line) { lines.emplace_back(line); });
  EXPECT_THAT(lines, ElementsAre("a", "", "b", allowed));
}

}  // namespace
}  // namespace flux2
