#include "hub/registry/relocate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/registry/describe.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using namespace testing_models;

class Relocate : public testing::Test {
 protected:
  Relocate() {
    tiny_model(root_ / "a");
    record_ = identify(root_ / "a/ae.safetensors").at(0).record;
    record_.key = "0123456789";
    record_.name = "mine";
    record_.description = "notes";
    record_.cover_asset = "ast_1";
    record_.defaults.steps = 7;
    record_.related = {"1123456789"};
    record_.sha256 = record_.files.at(0).sha256 = std::string(64, 'a');
  }
  ModelRecord moved(const fs::path& path) const { return relocated(record_, path, root_ / "data"); }

  fs::path root_ = fs::canonical(scratch_folder());
  ModelRecord record_;
};

TEST_F(Relocate, KeepsWhatPeopleWrote) {
  fs::create_directories(root_ / "b");
  fs::rename(root_ / "a/ae.safetensors", root_ / "b/renamed.safetensors");
  const ModelRecord now = moved(root_ / "b/renamed.safetensors");
  EXPECT_EQ(now.path, root_ / "b/renamed.safetensors");
  ASSERT_EQ(now.files.size(), 1u);
  EXPECT_EQ(now.files[0].path, now.path);
  EXPECT_EQ(now.source.ref, now.path.string());
  Json before = to_json(record_), after = to_json(now);
  for (const char* changed : {"path", "files", "source"}) before.erase(changed), after.erase(changed);
  EXPECT_EQ(before.dump(2), after.dump(2)) << "the hash too: the size is the same";
}

TEST_F(Relocate, AHashBelongsToAFileOfTheSameSize) {
  record_.files[0].bytes += 1;
  const ModelRecord now = moved(root_ / "a/ae.safetensors");
  EXPECT_EQ(now.sha256, "");
  EXPECT_EQ(now.files[0].sha256, "");
}

TEST_F(Relocate, FilesThatLeaveTheModelsFolderAreTheUsersOwn) {
  record_.in_place = false;
  EXPECT_TRUE(moved(root_ / "a/ae.safetensors").in_place);
  fs::create_directories(root_ / "data/models/x");
  fs::copy_file(root_ / "a/ae.safetensors", root_ / "data/models/x/ae.safetensors");
  EXPECT_FALSE(moved(root_ / "data/models/x/ae.safetensors").in_place);
}

TEST_F(Relocate, AnotherKindIsRefused) {
  EXPECT_THAT(refusal([&] { moved(root_ / "a/flux-2-tiny.safetensors"); }),
              AllOf(HasSubstr("Incompatible"), HasSubstr("another kind than mine"), HasSubstr("vae")));
  EXPECT_THAT(refusal([&] { moved(root_ / "nowhere.safetensors"); }), HasSubstr("NotFound"));
  write_file(root_ / "text.safetensors", "no model");
  EXPECT_THAT(refusal([&] { moved(root_ / "text.safetensors"); }), HasSubstr("text.safetensors"));
  record_.probe.hidden += 1;
  EXPECT_THAT(refusal([&] { moved(root_ / "a/ae.safetensors"); }), HasSubstr("another kind")) << "other sizes";
}

}  // namespace
}  // namespace flux2
