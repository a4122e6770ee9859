#include "hub/registry/check_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/registry/describe.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using namespace testing_models;

struct CheckRecord : testing::Test {
  fs::path data = scratch_folder();
  Registry registry{data};
  fs::path vae = tiny_model(data / "models/toy") / "ae.safetensors";
  ModelRecord record = registry.add(identify(vae).at(0).record);

  ModelRecord checked(const CheckOptions& options = {}) { return check_record(registry, *registry.find(record.key), options); }
  void flip(size_t at, char by) {
    std::string bytes = read_text_file(vae);
    bytes[at] = static_cast<char>(bytes[at] ^ by);
    write_file(vae, bytes);
  }
};

TEST_F(CheckRecord, ComputesTheHashOnceAndComparesLater) {
  const ModelRecord first = checked();
  EXPECT_EQ(first.state, ModelState::Ready) << first.note;
  EXPECT_EQ(first.sha256, hash_file(vae));
  EXPECT_EQ(registry.find(record.key)->files[0].sha256, first.sha256);
  const auto time = fs::last_write_time(vae);
  flip(fs::file_size(vae) - 1, 1);
  const ModelRecord changed = checked();
  EXPECT_EQ(changed.state, ModelState::Damaged);
  EXPECT_THAT(changed.note, HasSubstr("has changed"));
  EXPECT_EQ(registry.find(record.key)->state, ModelState::Damaged);
  EXPECT_EQ(quick_check(*registry.find(record.key)).state, ModelState::Damaged) << "a quick check does not forgive";
  flip(fs::file_size(vae) - 1, 1);
  fs::last_write_time(vae, time);
  EXPECT_EQ(checked().state, ModelState::Ready);
}

TEST_F(CheckRecord, KeepsWhatOthersChangeMeanwhile) {
  const CopyProgress edit = [&](uint64_t, uint64_t, const std::string&) {
    ModelRecord edited = *registry.find(record.key);
    edited.name = "renamed", edited.description = "for tests";
    registry.update(edited);
    return true;
  };
  const ModelRecord now = checked({.progress = edit});
  EXPECT_EQ(now.name, "renamed");
  const ModelRecord kept = *registry.find(record.key);
  EXPECT_EQ(kept.name, "renamed");
  EXPECT_EQ(kept.description, "for tests");
  EXPECT_EQ(kept.sha256, hash_file(vae));

  const CopyProgress remove = [&](uint64_t, uint64_t, const std::string&) {
    registry.remove(record.key);
    return true;
  };
  EXPECT_EQ(checked({.progress = remove}).state, ModelState::Ready) << "the rest is still to be checked";
  EXPECT_FALSE(registry.find(record.key));
}

TEST_F(CheckRecord, QuickCheckTrustsAnUnchangedFile) {
  checked();
  int pieces = 0;
  const CopyProgress count = [&](uint64_t, uint64_t, const std::string&) { return ++pieces > 0; };
  EXPECT_EQ(checked({.quick = true, .progress = count}).state, ModelState::Ready);
  EXPECT_EQ(pieces, 0);
  EXPECT_EQ(checked({.progress = count}).state, ModelState::Ready);
  EXPECT_GT(pieces, 0);
}

TEST_F(CheckRecord, QuickCheckComparesSizes) {
  fs::resize_file(vae, 1000);
  EXPECT_EQ(quick_check(record).state, ModelState::Damaged);
  EXPECT_THAT(quick_check(record).note, HasSubstr("has 1000 bytes"));
  EXPECT_THAT(checked().note, HasSubstr(fmt::format("{} were registered", record.bytes)));
  fs::remove(vae);
  EXPECT_EQ(quick_check(record).state, ModelState::Missing);
  EXPECT_EQ(checked().state, ModelState::Missing);
}

TEST_F(CheckRecord, PartsOfASetMayBeGone) {
  const auto parts = identify(data / "models/toy/text_encoder");
  const ModelRecord encoder = registry.add(parts.at(0).record);
  ASSERT_GT(encoder.files.size(), 1u);
  fs::remove(data / "models/toy/text_encoder/config.json");
  EXPECT_EQ(quick_check(encoder).state, ModelState::Incomplete);
  EXPECT_THAT(quick_check(encoder).note, HasSubstr("config.json"));
}

TEST_F(CheckRecord, FindsNonFiniteValues) {
  EXPECT_EQ(checked({.values = true}).state, ModelState::Ready);
  std::string bytes = read_text_file(vae);
  bytes[bytes.size() - 1] = '\x7f', bytes[bytes.size() - 2] = '\x80';  // bf16 infinity
  write_file(vae, bytes);
  registry.remove(record.key);
  record = registry.add(identify(vae).at(0).record);
  EXPECT_EQ(checked().state, ModelState::Ready);
  const ModelRecord odd = checked({.values = true});
  EXPECT_EQ(odd.state, ModelState::Damaged);
  EXPECT_THAT(odd.note, HasSubstr("not every weight is a number"));
}

}  // namespace
}  // namespace flux2
