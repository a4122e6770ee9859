#include "hub/registry/orphan_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/resumable_file.h"
#include "hub/remote/file_lock.h"
#include "hub/remote/partial_file.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_models;

class OrphanFilesTest : public testing::Test {
 protected:
  void use(const fs::path& path, std::vector<fs::path> files = {}) {
    ModelRecord r;
    r.path = path;
    if (files.empty()) files = {path};
    for (const fs::path& f : files) r.files.push_back({f, 1, ""});
    records_.push_back(r);
  }
  std::vector<std::string> listed() const {
    std::vector<std::string> names;
    for (const OrphanFiles& one : orphan_files(records_, data_)) names.push_back(one.path.lexically_relative(models_).string());
    return names;
  }

  fs::path root_ = fs::canonical(scratch_folder()), data_ = root_ / "data", models_ = data_ / "models";
  std::vector<ModelRecord> records_;
};

TEST_F(OrphanFilesTest, FoldersAndFilesWithoutARecord) {
  EXPECT_THAT(listed(), IsEmpty()) << "there is no folder yet";
  write_file(models_ / "old/transformer/x.safetensors", "12345");
  write_file(models_ / "old/model_index.json", "{}");
  write_file(models_ / "loras/a.safetensors", "1");
  write_file(models_ / "loras/b.safetensors", "12");
  write_file(models_ / "used/model.safetensors", "1");
  write_file(models_ / "used/README.md", "1");
  write_file(models_ / "used/.other.safetensors.partial", "123");
  write_file(models_ / "used/other/y.gguf", "1");
  write_file(models_ / "notes.txt", "1");
  use(models_ / "loras/a.safetensors");
  use(models_ / "used/model.safetensors");
  EXPECT_THAT(listed(), ElementsAre("loras/b.safetensors", "old", "used/.other.safetensors.partial", "used/other"));
  const auto found = orphan_files(records_, data_);
  EXPECT_EQ(found[1].files, 2u);
  EXPECT_EQ(found[1].bytes, 7u);
  EXPECT_TRUE(found[1].is_folder);
  EXPECT_TRUE(found[2].is_partial);
  EXPECT_FALSE(found[0].is_partial);
  records_.erase(records_.begin());
  EXPECT_THAT(listed(),
              ElementsAre("loras/a.safetensors", "loras/b.safetensors", "old", "used/.other.safetensors.partial", "used/other"))
      << "a folder for LoRAs is not one model";
}

TEST_F(OrphanFilesTest, InterruptedDownloadsAreListedOneByOne) {
  write_file(models_ / ".incoming/old.safetensors.part", "123");  // as older versions left them
  write_file(models_ / ".incoming/old.safetensors.part.note", "1");
  write_file(models_ / ".incoming/a.safetensors-0123/a.safetensors.part", "12");
  write_file(models_ / ".incoming/a.safetensors-0123/a.safetensors.part.note", "1");
  write_file(models_ / ".incoming/a.safetensors-0123.lock", "");
  write_file(models_ / "clip_vision/x.safetensors", "1");
  EXPECT_THAT(listed(), ElementsAre(".incoming/a.safetensors-0123", ".incoming/old.safetensors.part",
                                    ".incoming/old.safetensors.part.note", "clip_vision/x.safetensors"));
  const auto found = orphan_files(records_, data_);
  EXPECT_TRUE(found[0].is_partial);
  EXPECT_EQ(found[0].bytes, 3u);
  EXPECT_TRUE(found[1].is_partial);
  EXPECT_FALSE(found[3].is_partial);
}

// Another process, or a job of a server, may be installing a model.
TEST_F(OrphanFilesTest, WhatAnInstallationIsWritingIsNotDeleted) {
  write_file(models_ / "old/x.safetensors", "1");
  const fs::path address = models_ / ".incoming/a.safetensors-0123", copy = models_ / "vae/.b.safetensors.partial";
  write_file(address / "a.safetensors", "1");
  const auto in_use = [&] {
    std::vector<std::string> names;
    for (const OrphanFiles& one : orphan_files(records_, data_))
      if (one.in_use) names.push_back(one.path.lexically_relative(models_).string());
    return names;
  };
  const auto refused = [&](const fs::path& path) {
    return refusal([&] { remove_orphans({models_ / "old", path}, records_, data_); });
  };
  {
    const FileLock download(address.string() + ".lock", {}, {});
    const ResumableFile copying(models_ / "vae/b.safetensors", "from there");
    const PartialFile part(models_ / "loras/c.safetensors.part", "v1", 100, 100),
        of_repository(models_ / "repo/d.gguf.part", "v1", 100, 100);
    EXPECT_THAT(in_use(), ElementsAre(".incoming/a.safetensors-0123", "loras/c.safetensors.part", "loras/c.safetensors.part.note",
                                      "repo", "vae/.b.safetensors.partial"));
    for (const fs::path& path :
         {address, copy, models_ / "loras/c.safetensors.part", models_ / "loras/c.safetensors.part.note", models_ / "repo"}) {
      EXPECT_THAT(refused(path), HasSubstr("an installation that is under way is writing")) << path;
      EXPECT_TRUE(fs::exists(path));
    }
    EXPECT_TRUE(fs::exists(models_ / "old/x.safetensors"));
    EXPECT_TRUE(is_being_written(address / "a.safetensors"));
  }
  EXPECT_THAT(in_use(), IsEmpty());
  EXPECT_EQ(remove_orphans({address, copy, models_ / "repo", models_ / "loras/c.safetensors.part",
                            models_ / "loras/c.safetensors.part.note"},
                           records_, data_)
                .size(),
            5u);
  EXPECT_FALSE(fs::exists(address));
  EXPECT_FALSE(fs::exists(address.string() + ".lock"));
}

TEST_F(OrphanFilesTest, EverythingInTheFolderOfARecordIsItsOwn) {
  write_file(models_ / "toy/tokenizer/tokenizer.json", "{}");
  write_file(models_ / "toy/tokenizer/extra.safetensors", "{}");
  use(models_ / "toy/tokenizer", {models_ / "toy/tokenizer/tokenizer.json"});
  EXPECT_THAT(listed(), IsEmpty());
}

TEST_F(OrphanFilesTest, ARecordMayNameItsFilesThroughLinks) {
  write_file(root_ / "disk/models/a/x.safetensors", "1");
  write_file(root_ / "disk/models/b/x.safetensors", "1");
  fs::create_directories(data_);
  fs::create_directory_symlink(root_ / "disk/models", models_);  // the models folder itself may be on another disk
  use(models_ / "a/x.safetensors");
  use(root_ / "disk/models/b/x.safetensors");
  EXPECT_THAT(orphan_files(records_, data_), IsEmpty());
}

TEST_F(OrphanFilesTest, LinksAreNotFollowed) {
  write_file(root_ / "mine/precious.safetensors", "12345");
  write_file(models_ / "old/x.safetensors", "1");
  fs::create_directory_symlink(root_ / "mine", models_ / "link");
  fs::create_directory_symlink(root_ / "mine", models_ / "old/link");
  fs::create_symlink(root_ / "mine/precious.safetensors", models_ / "p.safetensors");
  EXPECT_THAT(listed(), ElementsAre("old", "p.safetensors"));
  EXPECT_EQ(orphan_files(records_, data_)[0].bytes, 1u);
  EXPECT_EQ(orphan_files(records_, data_)[1].bytes, 0u);
  const auto deleted = remove_orphans({models_ / "old", models_ / "p.safetensors"}, records_, data_);
  EXPECT_EQ(deleted.size(), 2u);
  EXPECT_FALSE(fs::exists(models_ / "old"));
  EXPECT_FALSE(fs::is_symlink(models_ / "p.safetensors"));
  EXPECT_TRUE(fs::exists(root_ / "mine/precious.safetensors"));
}

TEST_F(OrphanFilesTest, OnlyWhatIsListedIsDeleted) {
  write_file(models_ / "vae/a.safetensors", "1");
  write_file(models_ / "vae/b.safetensors", "1");
  write_file(root_ / "mine.safetensors", "1");
  use(models_ / "vae/a.safetensors");
  for (const fs::path& bad :
       {models_ / "vae/a.safetensors", models_ / "vae", models_, root_ / "mine.safetensors", models_ / "../../mine.safetensors",
        models_ / "vae/../vae/b.safetensors", fs::path("/"), fs::path()}) {
    EXPECT_THAT(refusal([&] {
                  remove_orphans({models_ / "vae/b.safetensors", bad}, records_, data_);
                }),
                HasSubstr("nothing was deleted"))
        << bad;
    EXPECT_TRUE(fs::exists(models_ / "vae/b.safetensors"));
  }
  remove_orphans({models_ / "vae/b.safetensors"}, records_, data_);
  EXPECT_FALSE(fs::exists(models_ / "vae/b.safetensors"));
  EXPECT_TRUE(fs::exists(models_ / "vae/a.safetensors"));
  records_.clear();
  remove_orphans({models_ / "vae/a.safetensors"}, records_, data_);
  EXPECT_FALSE(fs::exists(models_ / "vae")) << "a folder that became empty is deleted";
  EXPECT_TRUE(fs::exists(models_));
}

}  // namespace
}  // namespace flux2
