#include "hub/remote/hub_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "hub/remote/file_lock.h"
#include "hub/remote/known_files.h"
#include "tests/support/fake_hub.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

const std::string kCommit = test::FakeHub::kCommit, kBlob(64, 'a');

struct Cache : testing::Test {
  test::ScratchFolder scratch;
  HubCache cache{scratch.path(), "owner/name"};
};

TEST_F(Cache, UsesTheLibrarysLayout) {
  EXPECT_EQ(cache.blob("e"), scratch.path() / "models--owner--name/blobs/e");
  EXPECT_EQ(cache.lock("e"), scratch.path() / ".locks/models--owner--name/e.lock");
  EXPECT_EQ(cache.snapshot(kCommit), scratch.path() / "models--owner--name/snapshots" / kCommit);
}

TEST_F(Cache, RefsMapToCommits) {
  EXPECT_EQ(cache.commit_of(kCommit), kCommit);
  EXPECT_FALSE(cache.commit_of("main"));
  cache.write_ref("main", kCommit);
  cache.write_ref("refs/pr/1", kCommit);
  cache.write_ref(kCommit, kCommit);
  EXPECT_EQ(cache.commit_of("main"), kCommit);
  EXPECT_EQ(read_text_file(cache.folder() / "refs/refs/pr/1"), kCommit);
  EXPECT_FALSE(fs::exists(cache.folder() / "refs" / kCommit));
  EXPECT_FALSE(cache.commit_of("../refs/main"));
  std::ofstream(cache.folder() / "refs/odd") << "../../somewhere";
  EXPECT_FALSE(cache.commit_of("odd"));
}

// Two files that arrive at the same time both write the ref. The process may be killed after the first one's rename.
TEST_F(Cache, ARefThatIsRightLeavesNoDraftBesideIt) {
  cache.write_ref("main", kCommit);
  const fs::path draft = cache.folder() / "refs/.main.abc123.flux2-tmp";
  std::ofstream(draft) << kCommit;
  cache.write_ref("main", kCommit);
  EXPECT_FALSE(fs::exists(draft));
  EXPECT_EQ(cache.commit_of("main"), kCommit);
}

TEST_F(Cache, LinksAreRelativeAndReplaced) {
  cache.prepare();
  std::ofstream(cache.blob(kBlob)) << "content";
  cache.link(kCommit, "a/b/c.json", kBlob);
  cache.link(kCommit, "a/b/c.json", kBlob);
  const fs::path link = cache.snapshot(kCommit) / "a/b/c.json";
  EXPECT_EQ(fs::read_symlink(link), fs::path("../../../../blobs") / kBlob);
  EXPECT_EQ(read_text_file(link), "content");
  std::ofstream(cache.blob(std::string(64, 'b'))) << "more";
  cache.link(kCommit, "a/b/c.json", std::string(64, 'b'));
  EXPECT_EQ(read_text_file(link), "more");
  const auto files = cache.files(kCommit);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, "a/b/c.json");
  EXPECT_EQ(files[0].size, 4u);
  EXPECT_EQ(files[0].etag, std::string(64, 'b'));
  fs::remove(cache.blob(std::string(64, 'b')));
  EXPECT_TRUE(cache.files(kCommit).empty());  // a link to nothing
  EXPECT_THROW(cache.link(kCommit, "../../x", kBlob), Error);
  EXPECT_THROW(cache.link("main", "x", kBlob), Error);
}

TEST_F(Cache, RemembersWhatIsNotThere) {
  EXPECT_FALSE(cache.is_known_absent(kCommit, "x/y.json"));
  cache.note_absent(kCommit, "x/y.json");
  EXPECT_TRUE(cache.is_known_absent(kCommit, "x/y.json"));
  EXPECT_EQ(fs::file_size(cache.folder() / ".no_exist" / kCommit / "x/y.json"), 0u);
}

TEST_F(Cache, LockMakesTheSecondWait) {
  std::atomic<bool> first_done = false, second_done = false;
  auto first = std::make_unique<FileLock>(cache.lock("e"), nullptr, Log());
  std::jthread second([&] {
    const FileLock lock(cache.lock("e"), nullptr, Log());
    EXPECT_TRUE(first_done);
    second_done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(second_done);
  first_done = true;
  first.reset();
  second.join();
  EXPECT_TRUE(second_done);
  const FileLock held(cache.lock("e"), nullptr, Log());
  EXPECT_THROW(FileLock(
                   cache.lock("e"), [] { return true; }, Log()),
               Error);
}

TEST(KnownFiles, AreWellFormed) {
  EXPECT_GE(known_files().size(), 40u);
  for (const KnownFile& f : known_files()) {
    const std::string hash = f.sha256;
    EXPECT_TRUE(hash.empty() || (hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == hash.npos)) << f.path;
    EXPECT_TRUE(!f.exact || f.bytes > 0) << f.path;
  }
  ASSERT_TRUE(find_known_file("ec3d4e733a771f61c052fb4856c48b336c55eaf2c65487c2a1faeb9bbda7a343"));
  EXPECT_STREQ(find_known_file("ec3d4e733a771f61c052fb4856c48b336c55eaf2c65487c2a1faeb9bbda7a343")->path,
               "flux-2-klein-4b.safetensors");
  EXPECT_FALSE(find_known_file(""));
  EXPECT_EQ(known_files_of("Black-Forest-Labs/flux.2-dev").size(), 2u);
}

}  // namespace
}  // namespace flux2
