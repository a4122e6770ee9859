#include "hub/registry/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "hub/registry/database.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_models::refusal;
using testing_models::scratch_folder;
using testing_models::write_file;

ModelRecord full_record(const fs::path& path) {
  ModelRecord r;
  r.name = "my klein";
  r.type = ModelType::Main;
  r.family = "FLUX.2";
  r.variant = "flux.2-klein-4b";
  r.format = "safetensors";
  r.quant = "bf16";
  r.path = path;
  r.in_place = false;
  r.source = {"hub", "owner/repo", "0123"};
  r.sha256 = std::string(64, 'a');
  r.bytes = 7'751'105'712;
  r.license = "Apache-2.0";
  r.gated = true;
  r.triggers = {"ink \"wash\"", "ü"};
  r.description = "two\nlines";
  r.cover_asset = "cover.png";
  r.defaults = {.steps = 8, .width = 768, .height = 512, .guidance = 2.5, .lora_weight = 0.7};
  r.components = {"k1", "k2", "k3"};
  r.probe = {3072, 5, 20, 7680, 149, true};
  r.state = ModelState::Ready;
  r.note = "a note";
  r.files = {{path, 7'751'105'712, std::string(64, 'a')}};
  return r;
}

TEST(Registry, RoundTripsEveryField) {
  const fs::path data = scratch_folder();
  ModelRecord wanted = full_record(data / "models/klein.safetensors");
  const ModelRecord added = Registry(data).add(wanted);
  EXPECT_EQ(added.key.size(), 10u);
  EXPECT_GT(added.installed_at, 1'700'000'000);
  wanted.key = added.key;
  wanted.installed_at = added.installed_at;
  const Registry again(data);
  const auto found = again.find(added.key);
  ASSERT_TRUE(found);
  EXPECT_EQ(to_json(*found).dump(2), to_json(wanted).dump(2));
  EXPECT_EQ(to_json(*again.find("MY KLEIN")).dump(), to_json(wanted).dump()) << "names have no case";
  EXPECT_FALSE(again.find("klein"));
}

TEST(Registry, MovesWithItsFolder) {
  const fs::path folder = scratch_folder();
  {
    Registry registry(folder / "a");
    registry.add(full_record(folder / "a/models/x.safetensors"));
    ModelRecord outside = full_record("/elsewhere/y.safetensors");
    outside.name = "outside";
    registry.add(outside);
  }
  fs::rename(folder / "a", folder / "b");
  const Registry moved(folder / "b");
  EXPECT_EQ(moved.find("my klein")->path, folder / "b/models/x.safetensors");
  EXPECT_EQ(moved.find("my klein")->files[0].path, folder / "b/models/x.safetensors");
  EXPECT_EQ(moved.find("outside")->path, "/elsewhere/y.safetensors");
}

TEST(Registry, NamesAreUniqueAndKeysStay) {
  Registry registry(scratch_folder());
  const auto added = [&](const char* path, const char* name) {
    ModelRecord r = full_record(path);
    r.name = name;
    return registry.add(r);
  };
  const ModelRecord one = added("/m/1", "klein"), two = added("/m/2", "Klein"), three = added("/m/3", "klein");
  EXPECT_EQ(two.name, "Klein-2");
  EXPECT_EQ(three.name, "klein-3");
  EXPECT_EQ((std::set{one.key, two.key, three.key}).size(), 3u);
  // After removing and adding it again, it is the same model.
  EXPECT_TRUE(registry.remove(two.key));
  EXPECT_FALSE(registry.remove(two.key));
  EXPECT_EQ(added("/m/2", "other").key, two.key);
  // The same file may contain several parts.
  ModelRecord vae = full_record("/m/1");
  vae.type = ModelType::Vae;
  EXPECT_NE(registry.add(vae).key, one.key);

  ModelRecord renamed = one;
  renamed.name = "other";
  EXPECT_THAT(refusal([&] { registry.update(renamed); }), AllOf(HasSubstr("InvalidArgument"), HasSubstr("other")));
  renamed.name = "KLEIN";
  registry.update(renamed);
  EXPECT_EQ(registry.find(one.key)->name, "KLEIN");
  renamed.key = "0000000000";
  renamed.name = "x";
  EXPECT_THAT(refusal([&] { registry.update(renamed); }), HasSubstr("NotFound"));
  for (const char* bad : {"", "a/b", "a\nb", "-m", "..", "0123456789"}) {
    renamed.name = bad;
    EXPECT_THAT(refusal([&] { registry.add(renamed); }), HasSubstr("InvalidArgument")) << bad;
  }
}

TEST(Registry, ModelsAreRelatedInBothDirections) {
  const fs::path data = scratch_folder();
  Registry registry(data);
  const auto added = [&](const char* path) { return registry.add(full_record(path)); };
  const ModelRecord a = added("/m/1"), b = added("/m/2"), c = added("/m/3");
  EXPECT_TRUE(registry.relate(b.key, a.key));
  EXPECT_FALSE(registry.relate(a.key, b.key)) << "it is the same link";
  EXPECT_TRUE(registry.relate(c.key, b.key));
  EXPECT_THAT(registry.find(a.key)->related, ElementsAre(b.key));
  EXPECT_THAT(registry.find(b.key)->related, testing::UnorderedElementsAre(a.key, c.key));
  EXPECT_THAT(refusal([&] { registry.relate(a.key, a.key); }), HasSubstr("InvalidArgument"));
  EXPECT_THAT(refusal([&] { registry.relate(a.key, "0000000000"); }), HasSubstr("NotFound"));
  // Changing a record and reading its file again keep the links; removing it does not.
  ModelRecord renamed = *registry.find(b.key);
  renamed.name = "renamed";
  registry.update(renamed);
  added("/m/2");
  EXPECT_EQ(Registry(data).find(b.key)->related.size(), 2u);
  EXPECT_TRUE(registry.unrelate(b.key, c.key));
  EXPECT_FALSE(registry.unrelate(b.key, c.key));
  EXPECT_THAT(registry.find(c.key)->related, ElementsAre());
  registry.remove(b.key);
  EXPECT_THAT(registry.find(a.key)->related, ElementsAre());
  added("/m/2");
  EXPECT_THAT(registry.find(b.key)->related, ElementsAre());
}

TEST(Registry, APathBelongsToOneRecordOfAType) {
  Registry registry(scratch_folder());
  const ModelRecord a = registry.add(full_record("/m/1"));
  ModelRecord b = registry.add(full_record("/m/2"));
  b.path = "/m/1";
  EXPECT_THAT(refusal([&] { registry.update(b); }), AllOf(HasSubstr("InvalidArgument"), HasSubstr(a.name)));
  EXPECT_EQ(registry.find(b.key)->path, "/m/2");
}

TEST(Registry, UpdatingKeepsTheUsersChanges) {
  Registry registry(scratch_folder());
  const ModelRecord first = registry.add(full_record("/m/1"));
  ModelRecord again;
  again.name = "flux.2-klein-base-4b";
  again.path = "/m/1";
  again.variant = "flux.2-klein-base-4b";
  again.quant = "fp8";
  again.bytes = 5;
  again.source = {"path", "/m/1", ""};
  again.state = ModelState::Damaged;
  again.note = "cut off";
  again.triggers = {"from the header"};
  again.files = {{"/m/1", 5, ""}};
  const ModelRecord now = registry.add(again);
  EXPECT_EQ(now.key, first.key);
  EXPECT_EQ(now.name, "my klein");
  EXPECT_EQ(now.description, "two\nlines");
  EXPECT_THAT(now.triggers, ElementsAre("ink \"wash\"", "ü"));
  EXPECT_EQ(now.cover_asset, "cover.png");
  EXPECT_EQ(now.source, first.source);
  EXPECT_EQ(now.defaults.steps, 8);
  EXPECT_EQ(now.components.vae, "k1");
  EXPECT_EQ(now.installed_at, first.installed_at);
  EXPECT_EQ(now.variant, "flux.2-klein-base-4b");
  EXPECT_EQ(now.quant, "fp8");
  EXPECT_EQ(now.state, ModelState::Damaged);
  ASSERT_EQ(now.files.size(), 1u);
  EXPECT_EQ(now.files[0].bytes, 5u);
  EXPECT_EQ(registry.all().size(), 1u);
  again.source = {"hub", "owner/repo", "4567"};
  EXPECT_EQ(registry.add(again).source.revision, "4567") << "a newer revision of the same source";
}

TEST(Registry, ListsByTypeAndName) {
  Registry registry(scratch_folder());
  const auto add = [&](const char* name, ModelType type) {
    ModelRecord r = full_record(std::string("/m/") + name);
    r.name = name;
    r.type = type;
    registry.add(r);
  };
  add("ink", ModelType::Lora), add("b", ModelType::Main), add("vae", ModelType::Vae), add("A", ModelType::Main);
  std::vector<std::string> names;
  for (const ModelRecord& r : registry.all()) names.push_back(r.name);
  EXPECT_THAT(names, ElementsAre("A", "b", "vae", "ink"));
}

TEST(Registry, HashIsValidWhileTheFileIsUnchanged) {
  const fs::path data = scratch_folder(), file = data / "models/x";
  write_file(file, "one");
  Registry registry(data);
  EXPECT_FALSE(registry.known_hash(file));
  registry.remember_hash(file, "abc");
  EXPECT_EQ(registry.known_hash(file), "abc");
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  EXPECT_FALSE(registry.known_hash(file));
  registry.remember_hash(file, "abc");
  const auto changed = fs::last_write_time(file);
  write_file(file, "longer");
  fs::last_write_time(file, changed);
  EXPECT_FALSE(registry.known_hash(file));
}

TEST(Registry, TwoProcessesMayWriteAtOnce) {
  const fs::path data = scratch_folder();
  constexpr int kEach = 40;
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int status = 0;
      try {
        for (int i = 0; i < kEach; ++i) Registry(data).add(full_record(fmt::format("/m/{}/{}", child, i)));
      } catch (const std::exception& e) {
        std::fputs(e.what(), stderr);
        status = 1;
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::set<std::string> names;
  for (const ModelRecord& r : Registry(data).all()) names.insert(r.name);
  EXPECT_EQ(names.size(), 3u * kEach);
}

TEST(Registry, ReadingDoesNotCreateIt) {
  const fs::path data = scratch_folder();
  EXPECT_FALSE(Registry::existing(data));
  EXPECT_FALSE(Registry::existing(""));
  EXPECT_FALSE(fs::exists(data / "flux2.db"));
  Registry{data}.add(full_record("/m/1"));
  ASSERT_TRUE(Registry::existing(data));
  EXPECT_EQ(Registry::existing(data)->all().size(), 1u);
}

TEST(Registry, MigratesOlderVersions) {
  const fs::path data = scratch_folder();
  Registry{data}.add(full_record("/m/1"));
  {
    const Database db(data / "flux2.db", Database::Access::Write);  // as version 1 left it
    db.run("DROP TABLE file_hashes; DROP TABLE model_relations; UPDATE schema_versions SET version = 1");
  }
  write_file(data / "x", "y");
  Registry registry(data);
  registry.remember_hash(data / "x", "abc");
  EXPECT_EQ(registry.known_hash(data / "x"), "abc");
  EXPECT_TRUE(registry.find("my klein"));
}

// Older versions did so in a data folder that is reached through a link: once under each name of the folder.
TEST(Registry, AModelThatIsRegisteredTwiceIsReadOnce) {
  const fs::path root = fs::canonical(scratch_folder()), data = root / "link", file = data / "models/a.safetensors";
  fs::create_directories(root / "disk");
  fs::create_directory_symlink(root / "disk", data);
  write_file(file, "x");
  const ModelRecord older = Registry{data}.add(full_record(file));
  ModelRecord other = full_record("/m/1");
  other.name = "other";
  other.components = {older.key, "", ""};
  other = Registry{data}.add(other);
  Registry{data}.relate(other.key, older.key);
  {
    const Database db(data / "flux2.db", Database::Access::Write);
    const auto twin = [&](const char* key, const char* name, const fs::path& path, int age) {
      db.run(
          fmt::format("CREATE TEMP TABLE twin AS SELECT * FROM models WHERE key = '{0}';"
                      "UPDATE twin SET key = '{1}', name = '{2}', path = '{3}', installed_at = installed_at - {4};"
                      "INSERT INTO models SELECT * FROM twin; DROP TABLE twin;"
                      "INSERT INTO model_files VALUES ('{1}', '{3}', 1, '')",
                      older.key, key, name, path.string(), age));
    };
    twin("000000000a", "newest", root / "disk/models/a.safetensors", -10);
    twin("000000000b", "oldest", data / "models/a.safetensors", 10);
  }
  const auto names = [&] {
    std::vector<std::string> found;
    for (const ModelRecord& r : Registry(data).all()) found.push_back(r.name);
    return found;
  };
  EXPECT_THAT(names(), ElementsAre("newest", "other"));
  EXPECT_EQ(Registry(data).find(older.key)->key, "000000000a") << "its key leads to the newest";
  EXPECT_EQ(Registry(data).find("other")->components.vae, "000000000a");
  EXPECT_THAT(Registry(data).find("other")->related, ElementsAre("000000000a"));

  // The next write stores that, and the path as it is kept now.
  Registry(data).add(full_record("/m/2"));
  const Database db(data / "flux2.db", Database::Access::Write);
  const auto number = [&](const char* sql) {
    Statement row = db.prepare(sql);
    return row.step() ? row.integer(0) : -1;
  };
  EXPECT_EQ(number("SELECT count(*) FROM models"), 3);
  EXPECT_EQ(number("SELECT count(*) FROM models WHERE key = '000000000a' AND path = 'models/a.safetensors'"), 1);
  EXPECT_EQ(number("SELECT count(*) FROM model_files WHERE path LIKE '%a.safetensors'"), 1);
  EXPECT_EQ(number("SELECT count(*) FROM model_files WHERE path = 'models/a.safetensors'"), 1);
  EXPECT_EQ(number("SELECT count(*) FROM model_relations WHERE model = '000000000a' OR other = '000000000a'"), 1);
  EXPECT_EQ(Registry(data).find("other")->components.vae, "000000000a");
  EXPECT_EQ(Registry(data).add(full_record(file)).key, "000000000a") << "a scan finds the record";
  EXPECT_TRUE(Registry(data).remove("000000000a"));
  EXPECT_EQ(Registry(data).all().size(), 2u);
}

TEST(Registry, RemovingTheNewestOfARepeatedModelRemovesAll) {
  const fs::path root = fs::canonical(scratch_folder()), data = root / "link";
  fs::create_directories(root / "disk");
  fs::create_directory_symlink(root / "disk", data);
  const std::string key = Registry{data}.add(full_record(data / "models/a")).key;
  {
    const Database db(data / "flux2.db", Database::Access::Write);
    db.run(
        fmt::format("CREATE TEMP TABLE twin AS SELECT * FROM models; UPDATE twin SET key = '000000000a', name = 'older', "
                    "path = '{}', installed_at = 5; INSERT INTO models SELECT * FROM twin; DROP TABLE twin",
                    (root / "disk/models/a").string()));
  }
  EXPECT_TRUE(Registry(data).remove(key));
  EXPECT_TRUE(Registry(data).all().empty());
}

TEST(Registry, DamageIsReportedAndTheFileIsKept) {
  const fs::path data = scratch_folder();
  {
    Registry registry(data);
    for (int i = 0; i < 200; ++i) registry.add(full_record(fmt::format("/m/{}", i)));
  }
  const std::string good = read_text_file(data / "flux2.db");
  std::string bad = good;
  for (size_t i = 4096; i < bad.size(); i += 7) bad[i] = static_cast<char>(bad[i] ^ 0x5a);
  write_file(data / "flux2.db", bad);
  EXPECT_THAT(refusal([&] { Registry(data).all(); }),
              AllOf(HasSubstr("BadFile"), HasSubstr("flux2.db is damaged"), HasSubstr("rename it")));
  EXPECT_EQ(read_text_file(data / "flux2.db").size(), bad.size());
}

TEST(Registry, NamesAnInvalidRecord) {
  const fs::path data = scratch_folder();
  const std::string key = Registry{data}.add(full_record("/m/1")).key;
  const Database db(data / "flux2.db", Database::Access::Write);
  for (const char* damage : {"type = 'toaster'", "state = 'odd'", "probe = '{'", "defaults = x'ff00'"}) {
    db.run(std::string("SAVEPOINT s; UPDATE models SET ") + damage + "; RELEASE s");
    EXPECT_THAT(refusal([&] { Registry(data).all(); }), AllOf(HasSubstr("BadFile"), HasSubstr(key), HasSubstr("remove")))
        << damage;
    EXPECT_EQ(Registry(data).key_of(key), key);
    EXPECT_EQ(Registry(data).key_of("MY klein"), key);
    EXPECT_EQ(Registry(data).key_of("my"), std::nullopt);
    Registry(data).remove(key);
    Registry(data).add(full_record("/m/1"));
  }
  db.run("UPDATE models SET bytes = -1, installed_at = 'soon', probe = '[1]', defaults = '{\"steps\": \"x\"}'");
  const ModelRecord odd = *Registry(data).find(key);
  EXPECT_EQ(odd.bytes, 0u);
  EXPECT_EQ(odd.probe.hidden, 0);
  EXPECT_FALSE(odd.defaults.steps);
}

}  // namespace
}  // namespace flux2
