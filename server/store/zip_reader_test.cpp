#include "server/store/zip_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <fstream>

#include "base/error.h"
#include "server/store/test_folder.h"
#include "server/store/zip_stream.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

std::string whole(ZipStream stream) {
  const uint64_t size = stream.size();
  std::string bytes;
  for (std::string piece = stream.next(); !piece.empty(); piece = stream.next()) bytes += piece;
  EXPECT_EQ(bytes.size(), size);
  return bytes;
}

class Zip : public testing::Test {
 protected:
  std::filesystem::path written(const std::string& bytes) {
    const auto path = folder_ / ("a" + std::to_string(++count_) + ".zip");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::filesystem::path with(const std::vector<std::pair<std::string, std::string>>& entries) {
    std::vector<ZipStream::Entry> list;
    for (const auto& [name, content] : entries) list.push_back({.name = name, .content = content});
    return written(whole(ZipStream(list)));
  }
  // Entries that another program has compressed.
  std::filesystem::path deflated(const std::string& name, const std::string& content) {
    const auto path = folder_ / ("d" + std::to_string(++count_) + ".zip");
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
    zip_file_add(archive, name.c_str(), zip_source_buffer(archive, content.data(), content.size(), 0), 0);
    EXPECT_EQ(zip_close(archive), 0);
    return path;
  }
  static std::string text(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static std::string refusal(const std::filesystem::path& file, const ZipLimits& limits = {}) {
    try {
      open_zip(file, limits);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
      return e.what();
    }
    return {};
  }

  std::filesystem::path folder_ = server_test_folder();
  int count_ = 0;
};

TEST_F(Zip, WhatIsWrittenIsRead) {
  const std::string large(300'000, 'x');
  std::ofstream(folder_ / "large") << large;
  const auto path =
      written(whole(ZipStream({{.name = "a/b.txt", .content = "hello"},
                               {.name = "empty", .content = ""},
                               {.name = "größe", .content = {}, .file = [&] { return folder_ / "large"; }, .size = 300'000}})));
  const auto archive = open_zip(path);
  EXPECT_EQ(text(archive->read("a/b.txt")), "hello");
  EXPECT_EQ(text(archive->read("empty")), "");
  EXPECT_EQ(text(archive->read("größe")), large);
  EXPECT_EQ(archive->size_of("größe"), 300'000u);
  EXPECT_FALSE(archive->contains("c"));
  EXPECT_THROW(archive->read("c"), Error);
  EXPECT_EQ(whole(ZipStream({})).size(), 22u);
}

TEST_F(Zip, AFileThatChangesEndsTheStream) {
  std::ofstream(folder_ / "f") << "12345";
  ZipStream stream({{.name = "f", .content = {}, .file = [&] { return folder_ / "f"; }, .size = 9}});
  EXPECT_THROW(stream.next(), Error);
}

TEST_F(Zip, ManyEntriesNeedTheLargeForm) {
  std::vector<ZipStream::Entry> entries;
  for (int i = 0; i < 70'000; ++i) entries.push_back({.name = std::to_string(i), .content = "x"});
  const auto archive = open_zip(written(whole(ZipStream(entries))));
  EXPECT_EQ(text(archive->read("69999")), "x");
}

TEST_F(Zip, CompressedEntriesAreRead) {
  EXPECT_EQ(text(open_zip(deflated("a", std::string(5000, 'a')))->read("a")), std::string(5000, 'a'));
}

TEST_F(Zip, NamesThatLeadElsewhereAreRefused) {
  for (const char* name : {"../a", "a/../b", "/etc/passwd", "a\\b", "c:/x", "./a", "a//b", ".."})
    EXPECT_THAT(refusal(with({{name, "x"}})), HasSubstr("forbidden name")) << name;
  EXPECT_EQ(refusal(with({{"..a/b..", "x"}})), "");
  EXPECT_NE(refusal(with({{"a", "1"}, {"a", "2"}})), "") << "a name is there twice";
}

TEST_F(Zip, BombsAreRefused) {
  const auto bomb = deflated("a", std::string(2'000'000, 'a'));
  EXPECT_THAT(refusal(bomb, {.entry_bytes = 1'000'000}), HasSubstr("too large"));
  EXPECT_THAT(refusal(bomb, {.growth = 50, .small_total = 1'000'000}), HasSubstr("times as large"));
  EXPECT_EQ(refusal(bomb), "");
  EXPECT_THAT(refusal(with({{"a", ""}, {"b", ""}}), {.entries = 1}), HasSubstr("entries"));
}

TEST_F(Zip, DamagedArchivesAreRefused) {
  EXPECT_THAT(refusal(written("")), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal(written("not an archive")), HasSubstr("cannot be read"));
  const std::string good = whole(ZipStream({{.name = "a", .content = "hello"}, {.name = "b", .content = "world"}}));
  for (const size_t cut : {size_t{1}, size_t{20}, good.size() / 2})
    EXPECT_NE(refusal(written(good.substr(0, good.size() - cut))), "");
  std::string changed = good;
  changed[good.find("hello")] = 'j';
  const auto archive = open_zip(written(changed));
  EXPECT_THROW(archive->read("a"), Error);
  EXPECT_EQ(text(archive->read("b")), "world");
  // Every byte in turn: either it is refused, or what is read is right or refused.
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0xff);
    try {
      const auto one = open_zip(written(bytes));
      const std::string read = one->contains("a") ? text(one->read("a")) : "hello";
      EXPECT_EQ(read, "hello") << i;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::InvalidArgument) << i;
    }
  }
}

}  // namespace
}  // namespace flux2
