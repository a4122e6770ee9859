#include "hub/registry/remove_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_models;

ModelRecord record_of(const std::string& key, const fs::path& path, std::vector<fs::path> files) {
  ModelRecord r;
  r.key = r.name = key;
  r.path = path;
  for (const fs::path& f : files) r.files.push_back({f, 1, ""});
  return r;
}

TEST(RemoveFiles, OnlyInTheDataFolder) {
  const fs::path root = scratch_folder(), data = root / "data";
  write_file(data / "models/m/a.safetensors", "abc");
  write_file(data / "models/m/shared.json", "x");
  write_file(root / "mine.safetensors", "x");
  const ModelRecord one = record_of("1", data / "models/m/a.safetensors",
                                    {data / "models/m/a.safetensors", data / "models/m/shared.json", root / "mine.safetensors"});
  const ModelRecord two = record_of("2", data / "models/m/shared.json", {data / "models/m/shared.json"});
  const Removal removal = plan_removal(one, {one, two}, data);
  EXPECT_THAT(removal.files, ElementsAre(data / "models/m/a.safetensors"));
  EXPECT_THAT(removal.kept, ElementsAre(HasSubstr("another model"), HasSubstr("elsewhere")));
  EXPECT_EQ(removal.bytes, 3u);
  remove_files(removal, data);
  EXPECT_FALSE(fs::exists(data / "models/m/a.safetensors"));
  EXPECT_TRUE(fs::exists(data / "models/m/shared.json"));
  remove_files(plan_removal(two, {two}, data), data);
  EXPECT_FALSE(fs::exists(data / "models/m")) << "an empty folder goes too";
  EXPECT_TRUE(fs::exists(data / "models"));
  EXPECT_TRUE(fs::exists(root / "mine.safetensors"));

  const ModelRecord outside = record_of("3", root / "mine.safetensors", {root / "mine.safetensors"});
  EXPECT_THAT(refusal([&] { plan_removal(outside, {}, data); }), HasSubstr("InvalidArgument"));
  // A link from the data folder to another place does not allow deleting files there.
  fs::create_directory_symlink(root, data / "models/link");
  const ModelRecord linked = record_of("4", data / "models/link/mine.safetensors", {data / "models/link/mine.safetensors"});
  EXPECT_THAT(refusal([&] { plan_removal(linked, {}, data); }), HasSubstr("InvalidArgument"));
}

TEST(RemoveFiles, AnotherModelMayNameTheFileThroughALink) {
  const fs::path root = scratch_folder(), file = root / "real/models/a.safetensors";
  write_file(file, "abc");
  fs::create_directory_symlink(root / "real", root / "data");
  const fs::path linked = root / "data/models/a.safetensors";
  const ModelRecord one = record_of("1", linked, {linked}), two = record_of("2", file, {file});
  for (const ModelRecord& r : {one, two}) {
    const Removal removal = plan_removal(r, {one, two}, root / "data");
    EXPECT_THAT(removal.files, IsEmpty());
    EXPECT_THAT(removal.kept, ElementsAre(HasSubstr("another model")));
  }
}

TEST(RemoveFiles, RemovesLinksAndUnusedBlobsInAHubCache) {
  const fs::path cache = scratch_folder(), repository = cache / "models--o--n";
  write_file(repository / "blobs/aaa", "12345");
  write_file(repository / "blobs/bbb", "1");
  for (const char* link : {"111/x.safetensors", "111/y.json", "222/y.json"}) {
    fs::create_directories((repository / "snapshots" / link).parent_path());
    fs::create_symlink(std::string("../../blobs/") + (std::string(link).ends_with("json") ? "bbb" : "aaa"),
                       repository / "snapshots" / link);
  }
  const fs::path snapshot = repository / "snapshots/111";
  const ModelRecord one = record_of("1", snapshot / "x.safetensors", {snapshot / "x.safetensors", snapshot / "y.json"});
  const Removal removal = plan_removal(one, {one}, cache / "elsewhere");
  EXPECT_THAT(removal.blobs, ElementsAre(repository / "blobs/aaa"));
  EXPECT_EQ(removal.bytes, 5u);
  EXPECT_THAT(removal.kept, IsEmpty());
  remove_files(removal, cache / "elsewhere");
  EXPECT_FALSE(fs::exists(repository / "blobs/aaa"));
  EXPECT_FALSE(fs::exists(snapshot));
  EXPECT_TRUE(fs::exists(repository / "snapshots/222/y.json"));
}

}  // namespace
}  // namespace flux2
