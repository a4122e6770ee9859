#include "base/resumable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

fs::path scratch() {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("flux2_resumable_{}", ::getpid());
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

TEST(ResumableFile, ResumesFromTheLastMark) {
  const fs::path path = scratch() / "model.bin";
  {
    ResumableFile file(path, "a");
    file.write(bytes("first "));
    file.mark();
    file.write(bytes("lost"));
  }
  EXPECT_FALSE(fs::exists(path));
  ResumableFile again(path, "a");
  EXPECT_EQ(again.resumed_from(), 6u);
  again.write(bytes("second"));
  again.commit();
  EXPECT_EQ(read_text_file(path), "first second");
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1) << "nothing else is left";
}

TEST(ResumableFile, StartsOverWithAnotherFingerprintOrAfterDamage) {
  const fs::path path = scratch() / "model.bin";
  {
    ResumableFile file(path, "a");
    file.write(bytes("first"));
    file.mark();
  }
  EXPECT_EQ(ResumableFile(path, "b").resumed_from(), 0u);
  {
    ResumableFile file(path, "a");
    file.write(bytes("first"));
    file.mark();
  }
  fs::resize_file(path.parent_path() / ".model.bin.partial", 3);
  EXPECT_EQ(ResumableFile(path, "a").resumed_from(), 0u) << "shorter than the note says";
  std::ofstream(path.parent_path() / ".model.bin.partial.json") << "{";
  EXPECT_EQ(ResumableFile(path, "a").resumed_from(), 0u);
}

TEST(ResumableFile, AllowsOnlyOneWriter) {
  const fs::path path = scratch() / "model.bin";
  const ResumableFile file(path, "a");
  EXPECT_THROW(ResumableFile(path, "a"), Error);
}

}  // namespace
}  // namespace flux2
