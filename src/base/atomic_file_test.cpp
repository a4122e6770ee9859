#include "base/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/own_file.h"
#include "base/temporary_files.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class AtomicFileIn : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "flux2-atomic-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const char* name, const std::string& text) const {
    AtomicFile file(folder_ / name);
    file.write(text.data(), text.size());
    file.commit();
  }
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(folder_), {}); }
  mode_t mode(const char* name) const {
    struct stat state {};
    return ::stat((folder_ / name).c_str(), &state) == 0 ? state.st_mode & 0777 : 0;
  }

  fs::path folder_;
};

TEST_F(AtomicFileIn, AppearsOnlyOnCommit) {
  {
    AtomicFile file(folder_ / "below/one.bin");
    file.write("abc", 3);
    EXPECT_FALSE(fs::exists(folder_ / "below/one.bin"));
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "below"));
  write("below/one.bin", "abcd");
  EXPECT_EQ(fs::file_size(folder_ / "below/one.bin"), 4u);
}

TEST_F(AtomicFileIn, UmaskDecidesWhoMayRead) {
  const mode_t before = ::umask(0027);
  write("a", "x");
  ::umask(0077);
  write("b", "x");
  ::umask(0002);
  write("c", "x");
  ::umask(before);
  EXPECT_EQ(mode("a"), 0640u);
  EXPECT_EQ(mode("b"), 0600u);
  EXPECT_EQ(mode("c"), 0664u);
}

TEST_F(AtomicFileIn, PrivateFileStaysPrivate) {
  write("config.toml", "token");
  ::chmod((folder_ / "config.toml").c_str(), 0600);
  write("config.toml", "other");
  EXPECT_EQ(mode("config.toml"), 0600u);
}

TEST_F(AtomicFileIn, CommitNewNeverReplaces) {
  write("a.png", "old");
  AtomicFile file(folder_ / "a.png");
  file.write("new", 3);
  EXPECT_FALSE(file.commit_new());
  EXPECT_EQ(read_text_file(folder_ / "a.png"), "old");
  fs::remove(folder_ / "a.png");
  EXPECT_TRUE(file.commit_new());
  EXPECT_EQ(read_text_file(folder_ / "a.png"), "new");
  // A link that leads nowhere is a taken name too.
  fs::create_symlink("nowhere", folder_ / "link.png");
  AtomicFile linked(folder_ / "link.png");
  EXPECT_FALSE(linked.commit_new());
}

TEST_F(AtomicFileIn, OneOfManyWritersGetsTheName) {
  std::atomic<int> won = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      AtomicFile file(folder_ / "a");
      const std::string text = std::to_string(i);
      file.write(text.data(), text.size());
      won += file.commit_new() ? 1 : 0;
    });
  threads.clear();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(entries(), 1);
}

TEST_F(AtomicFileIn, RefusesToCommitAFileThatWasExchanged) {
  AtomicFile file(folder_ / "a.png");
  file.write("ours", 4);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const fs::path temporary = entry.path();
    fs::remove(temporary);
    std::ofstream(temporary) << "theirs";
  }
  EXPECT_THROW(file.commit(), Error);
  EXPECT_FALSE(fs::exists(folder_ / "a.png"));
}

TEST_F(AtomicFileIn, TemporariesOfKilledProcessesAreRemoved) {
  for (const char* name : {"a.json", "b.json"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      AtomicFile file(folder_ / name);
      file.write("x", 1);
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  }
  ASSERT_GE(entries(), 1);
  std::ofstream(folder_ / ".others.abcdef.tmp") << "of another program";
  AtomicFile running(folder_ / "c.json");
  EXPECT_EQ(entries(), 2) << "ours, and the other program's";
  remove_stale_temporaries(folder_);
  EXPECT_EQ(entries(), 2) << "ours is in use";
  running.commit();
  EXPECT_TRUE(fs::exists(folder_ / "c.json"));
  remove_stale_temporaries(folder_ / "nowhere");
}

TEST_F(AtomicFileIn, ASignalHandlerCanDeleteTemporaries) {
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile first(folder_ / "a"), second(folder_ / "b");
    { const AtomicFile done(folder_ / "c"); }
    write("d", "finished");
    delete_noted_temporaries();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(entries(), 1) << "only d";
  EXPECT_EQ(read_text_file(folder_ / "d"), "finished");
}

TEST_F(AtomicFileIn, LongNamesAreWritten) {
  const std::string name(255, 'x');
  write(name.c_str(), "1");
  EXPECT_TRUE(fs::exists(folder_ / name));
}

// A pipe stands for all special files: a test cannot make a device.
TEST_F(AtomicFileIn, WritesIntoAPipeAndLeavesItThere) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  write("pipe", "abc");
  char got[8] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 3);
  EXPECT_STREQ(got, "abc");
  AtomicFile second(pipe);
  EXPECT_TRUE(second.commit_new());
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(entries(), 1) << "no temporary file";
}

TEST_F(AtomicFileIn, RefusesAFolderBeforeAnythingIsWritten) {
  try {
    AtomicFile file(folder_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::CannotWrite);
    EXPECT_EQ(std::string(e.what()), "cannot write " + folder_.string() + ": it is a folder");
  }
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

}  // namespace
}  // namespace flux2
