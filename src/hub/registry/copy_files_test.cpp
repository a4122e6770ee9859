#include "hub/registry/copy_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/sha256.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using namespace testing_models;

std::string hash_of(const std::string& bytes) { return sha256(std::as_bytes(std::span(bytes))); }

std::string noise(size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t state = 1;
  for (char& c : text) state = state * 1664525 + 1013904223, c = static_cast<char>(state >> 24);
  return text;
}

TEST(CopyFiles, CopiesOnlyModelFiles) {
  const fs::path folder = scratch_folder();
  for (const char* name : {"a/model_index.json", "a/vae/x.safetensors", "a/picture.png", "a/.git/config.json", "a/run.py"})
    write_file(folder / name, name);
  std::vector<std::string> copied;
  for (const RecordedFile& f : copy_files(plan_copies(folder / "a", folder / "to/b"), {})) {
    copied.push_back(f.path.lexically_relative(folder / "to").string());
    EXPECT_EQ(f.sha256, hash_of(read_text_file(f.path)));
  }
  EXPECT_THAT(copied, testing::ElementsAre("b/model_index.json", "b/vae/x.safetensors"));
  EXPECT_EQ(read_text_file(folder / "to/b/vae/x.safetensors"), "a/vae/x.safetensors");

  write_file(folder / "s-00001-of-00002.safetensors", "1");
  write_file(folder / "s-00002-of-00002.safetensors", "2");
  EXPECT_EQ(plan_copies(folder / "s-00001-of-00002.safetensors", folder / "to/s-00001-of-00002.safetensors").size(), 2u);
}

TEST(CopyFiles, ResumesAfterAnInterruption) {
  const fs::path folder = scratch_folder();
  const std::string bytes = noise((64 << 20) + (9 << 20) + 5);
  write_file(folder / "x.safetensors", bytes);
  const auto plan = plan_copies(folder / "x.safetensors", folder / "to/x.safetensors");
  EXPECT_THAT(refusal([&] {
                copy_files(plan, [](uint64_t done, uint64_t total, const std::string&) { return done < total - (4 << 20); });
              }),
              HasSubstr("Cancelled"));
  EXPECT_FALSE(fs::exists(folder / "to/x.safetensors"));
  const fs::path partial = folder / "to/.x.safetensors.partial";
  ASSERT_TRUE(fs::exists(partial));
  const auto files = copy_files(plan, {});
  EXPECT_EQ(files[0].sha256, hash_of(bytes));
  EXPECT_TRUE(read_text_file(folder / "to/x.safetensors", {.bytes = bytes.size()}) == bytes);
  EXPECT_FALSE(fs::exists(partial));
  // The copy is complete, so nothing is written again.
  const auto before = fs::last_write_time(folder / "to/x.safetensors");
  EXPECT_EQ(copy_files(plan, {})[0].sha256, files[0].sha256);
  EXPECT_EQ(fs::last_write_time(folder / "to/x.safetensors"), before);
}

// A training run writes a file of the same size again.
TEST(CopyFiles, AnOriginalThatChangedIsCopiedAgain) {
  const fs::path folder = scratch_folder(), from = folder / "x.safetensors", to = folder / "to/x.safetensors";
  write_file(from, "first");
  copy_files(plan_copies(from, to), {});
  EXPECT_EQ(fs::last_write_time(to), fs::last_write_time(from));
  EXPECT_TRUE(is_copied({from, to, 5}));
  write_file(from, "again");
  fs::last_write_time(from, fs::last_write_time(to) + std::chrono::seconds(1));
  EXPECT_FALSE(is_copied({from, to, 5}));
  EXPECT_EQ(copy_files(plan_copies(from, to), {})[0].sha256, hash_of("again"));
  EXPECT_EQ(read_text_file(to), "again");
  // The time alone does not make it another file.
  fs::last_write_time(to, fs::last_write_time(from) - std::chrono::seconds(1));
  EXPECT_TRUE(is_copied({from, to, 5}));
}

// A copy that an older version made has another time, so all its bytes are read.
TEST(CopyFiles, ComparingBytesReportsProgressAndCanBeCancelled) {
  const fs::path folder = scratch_folder(), from = folder / "x.safetensors", to = folder / "to/x.safetensors";
  const std::string bytes = noise((3 << 20) + 7);
  write_file(from, bytes);
  write_file(to, bytes);
  fs::last_write_time(to, fs::last_write_time(from) - std::chrono::hours(1));
  const PlannedCopy copy{from, to, bytes.size()};
  EXPECT_THAT(refusal([&] { is_copied(copy, [](uint64_t done, uint64_t, const std::string&) { return done < (2 << 20); }); }),
              HasSubstr("Cancelled"));
  std::vector<uint64_t> told;
  const auto note = [&](uint64_t done, uint64_t total, const std::string& file) {
    EXPECT_EQ(total, bytes.size());
    EXPECT_EQ(file, "x.safetensors");
    told.push_back(done);
    return true;
  };
  EXPECT_TRUE(is_copied(copy, note));
  EXPECT_EQ(told.size(), 4u);
  EXPECT_EQ(told.back(), bytes.size());
  told.clear();
  EXPECT_TRUE(is_copied(copy, note));
  EXPECT_TRUE(told.empty()) << "it is not read again";
}

TEST(CopyFiles, FoldersThatAreLinksAreCopied) {
  const fs::path folder = scratch_folder();
  write_file(folder / "disk/encoder/model.safetensors", "weights");
  write_file(folder / "a/model_index.json", "{}");
  fs::create_directory_symlink(folder / "disk/encoder", folder / "a/text_encoder");
  fs::create_directory_symlink("..", folder / "a/back");
  fs::create_directory_symlink(folder / "gone", folder / "a/nowhere");
  std::vector<std::string> planned;
  for (const PlannedCopy& copy : plan_copies(folder / "a", folder / "to"))
    planned.push_back(copy.to.lexically_relative(folder / "to").string());
  EXPECT_THAT(planned, testing::ElementsAre("model_index.json", "text_encoder/model.safetensors"));
}

TEST(CopyFiles, FailsIfTheDiskIsTooSmall) {
  const fs::path folder = scratch_folder();
  write_file(folder / "x.safetensors", "x");
  fs::resize_file(folder / "x.safetensors", uint64_t{8} << 40);  // a hole of 8 TiB
  EXPECT_THAT(refusal([&] { copy_files(plan_copies(folder / "x.safetensors", folder / "to/x.safetensors"), {}); }),
              testing::AllOf(HasSubstr("CannotWrite"), HasSubstr("GiB are needed"), HasSubstr("in_place")));
  EXPECT_FALSE(fs::exists(folder / "to"));
}

TEST(CopyFiles, WhatAnInterruptedCopyWroteIsNotNeededAgain) {
  const fs::path folder = scratch_folder(), partial = folder / "to/.x.safetensors.partial";
  constexpr uint64_t kBytes = uint64_t{8} << 40;
  write_file(folder / "x.safetensors", "x");
  fs::resize_file(folder / "x.safetensors", kBytes);  // holes of 8 TiB
  write_file(partial, "x");
  fs::resize_file(partial, kBytes - 4096);
  const CopyProgress stop = [](uint64_t, uint64_t, const std::string&) { return false; };
  EXPECT_THAT(refusal([&] { copy_files(plan_copies(folder / "x.safetensors", folder / "to/x.safetensors"), stop); }),
              HasSubstr("Cancelled"));
}

}  // namespace
}  // namespace flux2
