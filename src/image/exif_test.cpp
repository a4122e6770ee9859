#include "image/exif.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

namespace flux2 {
namespace {

using namespace std::string_literals;

Exif parse(const std::string& block) { return parse_exif(std::as_bytes(std::span(block))); }

TEST(Exif, ReadsBackWhatItBuilds) {
  const Exif written{.orientation = 6, .make = "Maker", .software = "flux2.cpp 1", .comment = "a fox, 漢字 😀\nSteps: 4"};
  const Exif read = parse_exif(build_exif(written));
  EXPECT_EQ(read.orientation, 6);
  EXPECT_EQ(read.make, written.make);
  EXPECT_EQ(read.software, written.software);
  EXPECT_EQ(read.comment, written.comment);
  EXPECT_TRUE(build_exif({}).empty());
}

TEST(Exif, ReadsShortValuesInPlace) {
  const Exif read = parse_exif(build_exif({.make = "abc", .software = "x"}));
  EXPECT_EQ(read.make, "abc");
  EXPECT_EQ(read.software, "x");
}

TEST(Exif, ReadsLittleEndianWithPrefix) {
  const std::string block = "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0\0\0\0\0"s;
  EXPECT_EQ(parse(block).orientation, 8);
}

// One folder with a pointer to a second, which holds a UserComment of the given bytes.
std::string comment_block(const std::string& value) {
  return "II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x1a\0\0\0\0\0\0\0"s + "\x01\0\x86\x92\x07\0"s +
         static_cast<char>(value.size()) + "\0\0\0\x2c\0\0\0\0\0\0\0"s + value;
}

TEST(Exif, ReadsCommentsOfOtherWriters) {
  EXPECT_EQ(parse(comment_block("UNICODE\0h\0i\0"s)).comment, "hi");
  EXPECT_EQ(parse(comment_block("UNICODE\0\0h\0i"s)).comment, "hi");
  EXPECT_EQ(parse(comment_block("UNICODE\0\xfe\xff\0h\0i"s)).comment, "hi");
  EXPECT_EQ(parse(comment_block("ASCII\0\0\0hi\0\0"s)).comment, "hi");
  EXPECT_EQ(parse(comment_block("\0\0\0\0\0\0\0\0h\xc3\xa9"s)).comment, "hé");
  EXPECT_EQ(parse(comment_block("no prefix"s)).comment, "no prefix");
}

TEST(Exif, PrefixesMayBeRepeatedWithoutEnd) {
  std::string block;
  while (block.size() < (size_t{32} << 20)) block += "Exif\0\0"s;
  EXPECT_EQ(parse(block + "II*\0"s).orientation, 1);
}

TEST(Exif, RepeatedTagsAreDecodedOnce) {
  // 60,000 entries that all name the same megabyte as a text.
  std::string block = "MM\0*\0\0\0\x08"s + "\xea\x60"s;
  for (int i = 0; i < 60'000; ++i) block += "\x01\x0f\0\x02\0\x10\0\0\0\x0a\xfc\x90"s;
  block.resize(720'016, '\0');
  block += std::string(1 << 20, 'm');
  const std::clock_t began = std::clock();  // of the processor: other programs do not count
  EXPECT_EQ(parse(block).make.size(), 1u << 20);
  EXPECT_LT((std::clock() - began) / CLOCKS_PER_SEC, 5);
}

TEST(Exif, SurvivesDamage) {
  const auto block = build_exif({.make = "Maker", .software = "program", .comment = "text"});
  for (size_t size = 0; size <= block.size(); ++size) {
    const Exif part = parse_exif(std::span(block).first(size));
    for (const auto& [got, whole] :
         {std::pair(part.make, "Maker"), std::pair(part.software, "program"), std::pair(part.comment, "text")})
      EXPECT_TRUE(got.empty() || got == whole) << size << " bytes: " << got;
    EXPECT_EQ(part.orientation, 1);
  }
  std::mt19937 random(1);
  int intact = 0;
  for (int round = 0; round < 20000; ++round) {
    auto damaged = block;
    for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    const Exif exif = parse_exif(damaged);
    EXPECT_GE(exif.orientation, 1);
    EXPECT_LE(exif.orientation, 8);
    EXPECT_LE(exif.make.size(), 4 * damaged.size());  // nothing longer than the block, whatever lengths it claims
    EXPECT_LE(exif.comment.size(), 4 * damaged.size());
    intact += exif.make == "Maker" && exif.software == "program" && exif.comment == "text";
  }
  EXPECT_GT(intact, 0);
  EXPECT_LT(intact, 20000);
}

}  // namespace
}  // namespace flux2
