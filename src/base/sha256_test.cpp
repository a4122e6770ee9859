#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

namespace flux2 {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(bytes("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, HashesDataInParts) {
  Sha256 hash;
  hash.add(bytes("a"));
  EXPECT_NE(hash.hex(), sha256(bytes("abc")));
  EXPECT_EQ(hash.add(bytes("bc")).hex(), sha256(bytes("abc")));
}

}  // namespace
}  // namespace flux2
