#include "hub/remote/partial_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/json.h"
#include "base/sha256.h"
#include "hub/remote/hash_behind.h"
#include "hub/remote/transfer.h"
#include "tests/support/fake_hub.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

struct Partial : testing::Test {
  std::span<const std::byte> bytes(uint64_t begin, uint64_t end) const {
    return std::as_bytes(std::span(all)).subspan(begin, end - begin);
  }
  test::ScratchFolder scratch;
  const fs::path path = scratch.path() / "x.incomplete", note = scratch.path() / "x.incomplete.note";
  const std::string all = test::random_bytes(2500, 1);
};

TEST_F(Partial, SegmentsFillInAnyOrder) {
  PartialFile file(path, "k", 2500, 1000);
  ASSERT_EQ(file.segments(), 3u);
  EXPECT_EQ(file.missing(2).begin, 2000u);
  EXPECT_EQ(file.missing(2).end, 2500u);
  file.append(2, bytes(2000, 2500));
  file.append(0, bytes(0, 400));
  EXPECT_EQ(file.front().bytes, 400u);
  EXPECT_EQ(file.have(), 900u);
  file.append(0, bytes(400, 1000));
  file.append(1, bytes(1000, 2000));
  EXPECT_EQ(file.front().bytes, 2500u);
  EXPECT_TRUE(file.missing(1).empty());
  EXPECT_THROW(file.append(1, bytes(0, 1)), Error);
  file.commit(scratch.path() / "done");
  EXPECT_EQ(read_text_file(scratch.path() / "done"), all);
  EXPECT_FALSE(fs::exists(note));
}

TEST_F(Partial, NoteOfAKilledProcessIsDeletedOnlyIfTheFileIsComplete) {
  { PartialFile(path, "k", 2500, 1000).append(1, bytes(1000, 1300)); }
  remove_leftover_note_of(path);
  EXPECT_TRUE(fs::exists(note)) << "the download can go on";
  fs::rename(path, scratch.path() / "done");  // as the last step but one of commit()
  remove_leftover_note_of(path);
  EXPECT_FALSE(fs::exists(note));
}

TEST_F(Partial, ResumesByKey) {
  { PartialFile(path, "k", 2500, 1000).append(1, bytes(1000, 1300)); }
  EXPECT_EQ(PartialFile(path, "k", 2500, 1000).missing(1).begin, 1300u);
  EXPECT_EQ(PartialFile(path, "other", 2500, 1000).have(), 0u);
  EXPECT_EQ(PartialFile(path, "k", 2500, 1000).have(), 0u);  // the other one took its place
  { PartialFile(path, "k", 2500, 1000).append(0, bytes(0, 10)); }
  EXPECT_EQ(PartialFile(path, "k", 2501, 1000).have(), 0u);
}

TEST_F(Partial, AfterARestartOfTheMachineOnlyDurableBytesCount) {
  {
    PartialFile file(path, "k", 2500, 1000);
    file.append(0, bytes(0, 700));
    file.make_durable();
    file.append(0, bytes(700, 900));
  }
  EXPECT_EQ(PartialFile(path, "k", 2500, 1000).have(), 900u);
  std::fstream in(note, std::ios::in | std::ios::out | std::ios::binary);
  in.seekp(16 + 64);  // the machine's start, behind magic and key
  in << "another start";
  in.close();
  EXPECT_EQ(PartialFile(path, "k", 2500, 1000).have(), 700u);
  EXPECT_EQ(PartialFile(path, "k", 2500, 1000).have(), 700u);
}

TEST_F(Partial, RejectsInvalidNotes) {
  const auto fill = [&] {
    PartialFile file(path, "k", 2500, 1000);
    file.start_again(false);
    file.append(0, bytes(0, 1000));
  };
  fill();
  fs::resize_file(path, 999);
  EXPECT_EQ(PartialFile(path, "k", 2500, 1000).have(), 0u);
  const std::string good = [&] {
    fill();
    return read_text_file(note);
  }();
  for (size_t at = 0; at < good.size(); at += 3) {  // no damage to the note may crash, or promise more than there is
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xff);
    fill();
    std::ofstream(note, std::ios::binary) << bad;
    PartialFile file(path, "k", 2500, 1000);
    EXPECT_LE(file.have(), 1000u) << at;
  }
  std::ofstream(note, std::ios::binary) << good.substr(0, 50);
  EXPECT_EQ(PartialFile(path, "k", 2500, 1000).have(), 0u);
}

TEST_F(Partial, AllowsOnlyOneWriter) {
  PartialFile file(path, "k", 2500, 1000);
  EXPECT_THROW(PartialFile(path, "k", 2500, 1000), Error);
}

TEST_F(Partial, TheHashFollowsTheFront) {
  PartialFile file(path, "k", 2500, 1000);
  file.append(1, bytes(1000, 2000));
  HashBehind hash(file);
  file.append(0, bytes(0, 500));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  file.start_again(true);  // what was hashed so far is worth nothing now
  EXPECT_EQ(file.segments(), 1u);
  file.append(0, bytes(0, 2500));
  EXPECT_EQ(hash.finish(2500), sha256(bytes(0, 2500)));
  EXPECT_EQ(sha256_of_file(path), sha256(bytes(0, 2500)));
  EXPECT_EQ(git_blob_id(path), test::git_id(all));
}

TEST_F(Partial, LargeFilesTakeNoSpaceInAdvance) {
  const uint64_t size = 64'446'562'304;
  const uint64_t segment = segment_size(size);
  PartialFile file(path, "k", size, segment);
  uint64_t sum = 0, end = 0;
  for (size_t i = 0; i < file.segments(); ++i) {
    EXPECT_EQ(file.missing(i).begin, end);
    end = file.missing(i).end;
    sum += file.missing(i).size();
    EXPECT_LT(file.missing(i).size(), uint64_t{50'000'000'000});  // what the storage sends in one answer
  }
  EXPECT_EQ(sum, size);
  EXPECT_EQ(end, size);
  const size_t last = file.segments() - 1;
  file.append(last, bytes(0, 2500));
  EXPECT_EQ(file.missing(last).begin, last * segment + 2500);
  EXPECT_EQ(file.front().bytes, 0u);
  EXPECT_LT(fs::file_size(note), 100'000u);
  EXPECT_THROW(PartialFile(path, "k2", uint64_t{1} << 60, 1 << 20), Error);
}

TEST(SegmentSize, GrowsWithTheFile) {
  EXPECT_EQ(segment_size(0), 1u);
  EXPECT_EQ(segment_size(1000), 1000u);
  EXPECT_EQ(segment_size(8 << 20), uint64_t{8 << 20});
  EXPECT_EQ(segment_size(100 << 20), uint64_t{6 << 20});
  EXPECT_EQ(segment_size(uint64_t{7} << 30), uint64_t{64} << 20);
}

}  // namespace
}  // namespace flux2
