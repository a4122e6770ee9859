#include "base/file_hash.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/json.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

TEST(FileHash, IsSha256AndIsCached) {
  std::string pattern = (fs::temp_directory_path() / "flux2-hash-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data()), file = folder / "abc", cache = folder / "cache/hashes.json";
  std::ofstream(file) << "abc";
  constexpr auto kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(sha256_of_file(file), kAbc);
  EXPECT_EQ(remembered_hash(file, cache, 2), "");  // larger than we are willing to read
  EXPECT_EQ(remembered_hash(file, cache), kAbc);
  EXPECT_EQ(remembered_hash(file, cache, 2), kAbc);  // known by now

  std::ofstream(file) << "abcd";
  EXPECT_EQ(remembered_hash(file, cache, 2), "");  // another file under the same name
  std::ofstream(cache) << "{ damaged";
  EXPECT_EQ(remembered_hash(file, cache).size(), 64u);
  EXPECT_EQ(remembered_hash(folder / "absent", cache), "");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace flux2
