// `flux2 models` and registered names, as a user sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/resumable_file.h"
#include "base/sha256.h"
#include "hub/registry/database.h"
#include "image/read_image.h"
#include "tests/support/program.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CliModels : public Cli {
 protected:
  void synth(const std::string& folder, const std::string& seed = "0", const std::string& layout = "bfl") {
    const Finished made = flux2({"models", "synth", "--seed", seed, "--layout", layout, "--out", folder});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  Json json(std::vector<std::string> words) const {
    words.push_back("--json");
    const Finished done = flux2(std::move(words));
    EXPECT_EQ(done.status, 0) << done.err;
    return parse_json(done.out);
  }
  Json info(const std::string& name) const { return json({"models", "info", name}); }
  std::vector<std::string> names(std::vector<std::string> filter = {}) const {
    filter.insert(filter.begin(), {"models", "list"});
    std::vector<std::string> list;
    for (const Json& r : json(filter))
      if (r["registered"].get<bool>()) list.push_back(r["name"].get<std::string>());
    return list;
  }
  Image picture(std::vector<std::string> words) const {
    words.insert(words.begin(), {"a red circle", "-S", "3", "-o", "out.png"});
    const Finished made = generate(words);
    EXPECT_EQ(made.status, 0) << made.err;
    return made.status == 0 ? read_image(folder_ / "out.png") : Image{};
  }
};

TEST_F(CliModels, ScanShowsThenRegisters) {
  synth("toys/toy");
  const Json seen = json({"models", "scan", "toys"});
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_FALSE(seen[0]["installed"].get<bool>());
  EXPECT_FALSE(exists("home/flux2.db")) << "looking changes nothing";
  const Json added = json({"models", "scan", "toys", "--add"});
  EXPECT_TRUE(added[0]["installed"].get<bool>());
  EXPECT_THAT(names(), ElementsAre("tiny", "toy-vae", "toy-text-encoder", "toy-tokenizer"));
  EXPECT_THAT(names({"--type", "vae"}), ElementsAre("toy-vae"));
  EXPECT_THAT(names({"TOKEN"}), ElementsAre("toy-tokenizer"));
  EXPECT_THAT(names({"--variant", "qwen3", "--format", "sharded"}), ElementsAre());
  EXPECT_EQ(flux2({"models", "list", "--type", "toaster"}).status, 2);
  const Json vae = info("toy-vae");
  EXPECT_EQ(vae["state"], "ready");
  EXPECT_EQ(vae["bytes"], fs::file_size(folder_ / "toys/toy/ae.safetensors"));
  EXPECT_EQ(vae["probe"]["hidden"], 32);
  EXPECT_THAT(flux2({"models", "list"}).out,
              AllOf(HasSubstr("toy-vae"), HasSubstr(vae["key"].get<std::string>()), HasSubstr("10.2 MiB")));

  // A second scan keeps the name and description that the user gave to a model.
  ASSERT_EQ(
      flux2({"models", "edit", "tiny", "--name", "mine", "--description", "for tests", "--trigger", "x", "--steps", "3"}).status,
      0);
  EXPECT_EQ(json({"models", "scan", "toys", "--add"}).size(), 4u);
  const Json mine = info("mine");
  EXPECT_EQ(mine["description"], "for tests");
  EXPECT_THAT(mine["trigger_phrases"], ElementsAre("x"));
  EXPECT_EQ(mine["defaults"]["steps"], 3);
  EXPECT_EQ(names().size(), 4u);
}

// Large models often live on another disk, and a link leads to them.
TEST_F(CliModels, TheDataFolderMayBeALink) {
  fs::remove(folder_ / "home");
  fs::create_directories(folder_ / "disk");
  fs::create_directory_symlink("disk", folder_ / "home");
  ASSERT_EQ(flux2({"models", "install", pico("ae.safetensors"), "--name", "mine"}).status, 0);
  const Json listed = json({"models", "list", "--type", "vae"});
  EXPECT_EQ(listed.size(), 1u) << listed.dump();
  EXPECT_TRUE(json({"models", "orphans"}).empty());
  const Json scanned = json({"models", "scan", "--add"});
  ASSERT_EQ(scanned.size(), 1u);
  EXPECT_EQ(scanned[0]["name"], "mine");
  EXPECT_THAT(names(), ElementsAre("mine"));
}

TEST_F(CliModels, NameIsEquivalentToThePath) {
  synth("a", "1"), synth("b", "2", "diffusers");
  ASSERT_EQ(flux2({"models", "install", "a", "--in-place", "--name", "first"}).status, 0);
  ASSERT_EQ(flux2({"models", "install", "b", "--in-place", "--name", "second"}).status, 0);
  const Image a = picture({"-m", "a"}), b = picture({"-m", "b"});
  ASSERT_NE(a, b);
  EXPECT_EQ(picture({"-m", "first"}), a);
  EXPECT_EQ(picture({"-m", "SECOND"}), b);
  EXPECT_EQ(picture({"-m", "sec"}), b);
  EXPECT_EQ(picture({"-m", info("first")["key"].get<std::string>()}), a);

  const Finished none = generate({"a fox", "-m", "fisrt"}), several = generate({"a fox"});
  EXPECT_EQ(none.status, 3);
  EXPECT_THAT(none.err, HasSubstr("the closest known ids are first"));
  EXPECT_EQ(several.status, 0);
  EXPECT_THAT(several.err, HasSubstr("several models are installed (first, second) and none is chosen: using the bundled one"));
  ASSERT_EQ(flux2({"config", "set", "generate.model", "second"}).status, 0);
  EXPECT_EQ(picture({}), b);

  // Only the autoencoder is replaced.
  const Image mixed = picture({"-m", "first", "--vae", "b/vae"});
  EXPECT_NE(mixed, a);
  EXPECT_EQ(picture({"-m", "first", "--vae", "b-vae"}), mixed);
  ASSERT_EQ(flux2({"models", "edit", "first", "--vae", "b-vae"}).status, 0);
  EXPECT_EQ(picture({"-m", "first"}), mixed);
  ASSERT_EQ(flux2({"models", "edit", "first", "--vae", ""}).status, 0);
  EXPECT_EQ(picture({"-m", "first"}), a);
  EXPECT_EQ(flux2({"models", "edit", "first", "--vae", "second"}).status, 2);  // that is not an autoencoder

  ASSERT_EQ(flux2({"convert", "first", "-o", "first.gguf", "--quant", "q8_0"}).status, 0);
  EXPECT_THAT(flux2({"inspect", "first.gguf"}).out, HasSubstr("transformer: custom FLUX.2"));
  EXPECT_EQ(flux2({"tokenize", "--tokenizer", "a-tokenizer", "a fox"}).out,
            flux2({"tokenize", "--tokenizer", "a/tokenizer", "a fox"}).out);
}

TEST_F(CliModels, AnInstalledCopyIsComplete) {
  synth("a");
  const Image before = picture({"-m", "a"});
  const Json plan = json({"models", "install", "a", "--dry-run"});
  EXPECT_EQ(json({"models", "install", "a", "a/ae.safetensors", "--dry-run"}).size(), plan.size() + 1) << "one list of all files";
  EXPECT_EQ(json({"models", "install", "a", "--in-place", "--dry-run"}), Json::array());
  EXPECT_FALSE(exists("home/models"));
  const Json made = json({"models", "install", "a/"});
  ASSERT_EQ(made.size(), 4u);
  fs::remove_all(folder_ / "a");
  EXPECT_EQ(picture({}), before);  // the only one installed
  EXPECT_EQ(made[0]["source"]["ref"], (folder_ / "a").string());
  EXPECT_FALSE(made[0]["in_place"].get<bool>());
  size_t bytes = 0;
  for (const Json& file : plan) {
    const std::string at = file["to"].get<std::string>();
    EXPECT_TRUE(fs::exists(at)) << at;
    bytes += fs::file_size(at);
  }
  EXPECT_GT(bytes, 20'000'000u);
  const Json vae = info("tiny-vae");
  const std::string content = read_text_file(vae["path"].get<std::string>());
  EXPECT_EQ(vae["sha256"], sha256(std::as_bytes(std::span(content))));

  // The same file is not copied again; a different file with the same name gets a name of its own.
  synth("a");
  EXPECT_EQ(json({"models", "install", "a"})[0]["key"], made[0]["key"]);
  synth("z/a", "7");
  const Json other = json({"models", "install", "z/a"});
  EXPECT_EQ(other[0]["name"], "tiny-2");
  EXPECT_NE(other[0]["path"], made[0]["path"]);
  EXPECT_EQ(picture({"-m", "tiny"}), before);
}

TEST_F(CliModels, ForeignOrDamagedFilesAreNotInstalled) {
  const float zero[4] = {};
  const Tensor t = Tensor::host_copy(zero, DType::F32, {2, 2});
  save_tensors(folder_ / "flux1.safetensors", {{"double_blocks.0.img_mod.lin.weight", t}, {"vector_in.in_layer.weight", t}});
  const Finished foreign = flux2({"models", "install", "flux1.safetensors"});
  EXPECT_EQ(foreign.status, 4);
  EXPECT_THAT(foreign.err, HasSubstr("FLUX.1"));
  synth("a");
  fs::resize_file(folder_ / "a/ae.safetensors", 100'000);
  for (const char* source : {"a/ae.safetensors", "a"}) {
    const Finished cut = flux2({"models", "install", source, "--in-place"});
    EXPECT_EQ(cut.status, 4) << source;
    EXPECT_THAT(cut.err, HasSubstr("ae.safetensors"));
  }
  EXPECT_EQ(flux2({"models", "install", "nowhere"}).status, 3);
  EXPECT_EQ(flux2({"models", "install", "a/tokenizer", "--name", "a/b"}).status, 2);
  EXPECT_THAT(names(), ElementsAre());
  const Json identified = json({"models", "identify", "flux1.safetensors"});
  EXPECT_EQ(identified[0]["state"], "unsupported");
  EXPECT_EQ(identified[0]["family"], "FLUX.1");
  EXPECT_FALSE(exists("home/models"));
}

TEST_F(CliModels, RemoveAsksForConfirmation) {
  synth("a"), synth("b", "2");
  ASSERT_EQ(flux2({"models", "install", "a", "--name", "copied"}).status, 0);
  ASSERT_EQ(flux2({"models", "install", "b/ae.safetensors", "--in-place", "--name", "mine"}).status, 0);
  const Finished no = flux2({"models", "remove", "copied", "--files"}, "n\n");
  EXPECT_EQ(no.status, 1);
  EXPECT_THAT(no.err, AllOf(HasSubstr("Remove copied and delete 2 files"), HasSubstr("[y/N]")));
  EXPECT_EQ(flux2({"models", "remove", "copied", "--files"}).status, 1) << "no answer is no";
  const std::string path = info("copied")["path"].get<std::string>(), key = info("copied")["key"].get<std::string>();
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(flux2({"models", "remove", "copied", "--files"}, "y\n").status, 0);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(flux2({"models", "info", key}).status, 3);
  EXPECT_EQ(flux2({"models", "info", "copied"}).status, 2) << "its autoencoder and encoder are called copied-…";

  const Finished theirs = flux2({"models", "remove", "mine", "--files", "-y"});
  EXPECT_EQ(theirs.status, 2);
  EXPECT_THAT(theirs.err, HasSubstr("registered in place"));
  EXPECT_EQ(flux2({"models", "remove", "mine", "-y"}).status, 0);
  EXPECT_TRUE(exists("b/ae.safetensors"));
  EXPECT_EQ(flux2({"models", "remove", "mine"}).status, 3);
}

TEST_F(CliModels, ListsMissingFilesAndOrphans) {
  synth("a");
  ASSERT_EQ(flux2({"models", "install", "a/ae.safetensors", "--in-place", "--name", "v"}).status, 0);
  EXPECT_TRUE(json({"models", "missing"}).empty());
  fs::remove(folder_ / "a/ae.safetensors");
  const Json gone = json({"models", "missing"});
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0]["name"], "v");
  EXPECT_EQ(gone[0]["state"], "missing");
  EXPECT_EQ(json({"models", "list", "--type", "vae"})[0]["state"], "missing");
  EXPECT_EQ(flux2({"models", "verify"}).status, 4);

  // For a model that cannot run, the missing part is named.
  fs::create_directories(folder_ / "alone");
  fs::rename(folder_ / "a/flux-2-tiny.safetensors", folder_ / "alone/x.safetensors");
  ASSERT_EQ(flux2({"models", "install", "alone/x.safetensors", "--in-place"}).status, 0);
  const Json lacks = json({"models", "missing"});
  ASSERT_EQ(lacks.size(), 2u);
  EXPECT_EQ(lacks[0]["name"], "x");
  EXPECT_THAT(lacks[0]["note"].get<std::string>(), HasSubstr("the autoencoder of"));

  EXPECT_TRUE(json({"models", "orphans"}).empty());
  fs::create_directories(folder_ / "home/models/vae");
  synth("c");
  fs::rename(folder_ / "c/ae.safetensors", folder_ / "home/models/vae/loose.safetensors");
  write("home/models/vae/.x.safetensors.partial", "abc");
  const Json loose = json({"models", "orphans"});
  ASSERT_EQ(loose.size(), 2u);
  EXPECT_EQ(loose[0]["type"], "vae");
  EXPECT_EQ(loose[1]["type"], "partial");
  ASSERT_EQ(flux2({"models", "scan", "--add"}).status, 0);
  EXPECT_EQ(json({"models", "orphans"}).size(), 1u);
}

TEST_F(CliModels, OrphansAreDeletedAfterAQuestion) {
  synth("c");
  fs::create_directories(folder_ / "home/models/vae");
  fs::copy_file(folder_ / "c/ae.safetensors", folder_ / "home/models/vae/used.safetensors");
  ASSERT_EQ(flux2({"models", "scan", "--add"}).status, 0);
  fs::rename(folder_ / "c", folder_ / "home/models/old");
  fs::copy_file(folder_ / "home/models/old/ae.safetensors", folder_ / "home/models/vae/loose.safetensors");
  write("home/models/vae/.x.safetensors.partial", "abc");
  EXPECT_EQ(flux2({"models", "orphans", "old"}).status, 2) << "paths belong to --delete";
  EXPECT_EQ(flux2({"models", "orphans", "--delete", "vae/used.safetensors", "-y"}).status, 3);
  EXPECT_EQ(flux2({"models", "orphans", "--delete", "../flux2.db", "-y"}).status, 3);
  EXPECT_EQ(flux2({"models", "orphans", "--delete"}).status, 1) << "nobody said yes";
  EXPECT_TRUE(exists("home/models/old/ae.safetensors"));
  const Json one = json({"models", "orphans", "--delete", "vae/loose.safetensors", "-y"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0]["files"], 1);
  EXPECT_FALSE(exists("home/models/vae/loose.safetensors"));
  const Finished rest = flux2({"models", "orphans", "--delete", "-y"});
  EXPECT_EQ(rest.status, 0);
  EXPECT_THAT(rest.out, AllOf(HasSubstr("models/old"), HasSubstr(".partial")));
  EXPECT_FALSE(exists("home/models/old"));
  EXPECT_TRUE(exists("home/models/vae/used.safetensors"));
  EXPECT_THAT(flux2({"models", "orphans", "--delete", "-y"}).err, HasSubstr("belongs to a registered model"));
}

TEST_F(CliModels, OrphansThatAnInstallationIsWritingAreKept) {
  write("home/models/vae/.old.safetensors.partial", "abc");
  {
    const ResumableFile copying(folder_ / "home/models/vae/new.safetensors", "another process");
    EXPECT_THAT(json({"models", "orphans"}).dump(), HasSubstr("an installation that is under way is writing it"));
    const Finished deleted = flux2({"models", "orphans", "--delete", "-y"});
    EXPECT_EQ(deleted.status, 0);
    EXPECT_THAT(deleted.err, HasSubstr(".new.safetensors.partial was not deleted"));
    EXPECT_EQ(flux2({"models", "orphans", "--delete", "vae/.new.safetensors.partial", "-y"}).status, 1);
    EXPECT_TRUE(exists("home/models/vae/.new.safetensors.partial"));
    EXPECT_FALSE(exists("home/models/vae/.old.safetensors.partial"));
  }
  EXPECT_EQ(flux2({"models", "orphans", "--delete", "-y"}).status, 0);
  EXPECT_FALSE(exists("home/models/vae/.new.safetensors.partial"));
}

TEST_F(CliModels, ARecordThatCannotBeReadIsRemovedByItsKey) {
  synth("c");
  const Json parts = json({"models", "install", "c/ae.safetensors", "--in-place"});
  const std::string key = parts.at(0)["key"];
  Database(folder_ / "home/flux2.db", Database::Access::Write).run("UPDATE models SET type = 'toaster'");
  const Finished listed = flux2({"models", "list"});
  EXPECT_THAT(listed.err, AllOf(HasSubstr(key), HasSubstr("models remove")));
  EXPECT_EQ(flux2({"models", "remove", key, "--files", "-y"}).status, 4) << "which files it has is not known";
  EXPECT_EQ(flux2({"models", "remove", "other", "-y"}).status, 4) << "this record is not the one that was named";
  EXPECT_EQ(flux2({"models", "remove", key, "-y"}).status, 0);
  EXPECT_EQ(flux2({"models", "missing"}).status, 0);
  EXPECT_TRUE(exists("c/ae.safetensors"));

  ASSERT_EQ(flux2({"models", "install", "c/ae.safetensors", "--in-place", "--name", "mine"}).status, 0);
  Database(folder_ / "home/flux2.db", Database::Access::Write).run("UPDATE models SET type = 'toaster'");
  EXPECT_EQ(flux2({"models", "remove", "Mine", "-y"}).status, 0) << "by its name";
  EXPECT_EQ(flux2({"models", "missing"}).status, 0);
}

TEST_F(CliModels, MovedFilesAndRelatedModels) {
  synth("a");
  ASSERT_EQ(flux2({"models", "scan", "a", "--add"}).status, 0);
  ASSERT_EQ(flux2({"models", "edit", "a-vae", "--name", "v", "--description", "mine"}).status, 0);
  const std::string key = info("v")["key"], main = info("tiny")["key"];
  fs::create_directories(folder_ / "b");
  fs::rename(folder_ / "a/ae.safetensors", folder_ / "b/moved.safetensors");
  ASSERT_EQ(info("v")["state"], "missing");
  const Finished other = flux2({"models", "relocate", "v", "a/flux-2-tiny.safetensors"});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.err, HasSubstr("another kind than v"));
  const Finished moved = flux2({"models", "relocate", "v", "b/moved.safetensors"});
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_THAT(moved.out, HasSubstr("b/moved.safetensors"));
  EXPECT_EQ(info("v")["state"], "ready");
  EXPECT_EQ(info("v")["key"], key);
  EXPECT_EQ(info("v")["description"], "mine");

  ASSERT_EQ(flux2({"models", "relate", "v", "tiny"}).status, 0);
  EXPECT_EQ(info("tiny")["related"], Json({key}));
  EXPECT_EQ(info("v")["related"], Json({main}));
  EXPECT_THAT(flux2({"models", "info", "v"}).out, HasSubstr("tiny"));
  EXPECT_THAT(flux2({"models", "relate", "v", "tiny"}).err, HasSubstr("already related"));
  EXPECT_EQ(flux2({"models", "relate", "v", "v"}).status, 2);
  EXPECT_EQ(flux2({"models", "relate", "v"}).status, 2);
  ASSERT_EQ(flux2({"models", "relate", "tiny", "v", "--remove"}).status, 0);
  EXPECT_EQ(info("v")["related"], Json::array());
}

TEST_F(CliModels, VerifyFindsAChangedByte) {
  synth("a");
  ASSERT_EQ(flux2({"models", "scan", "a", "--add"}).status, 0);
  const Json good = json({"models", "verify", "--values"});
  ASSERT_EQ(good.size(), 4u);
  for (const Json& r : good) EXPECT_EQ(r["state"], "ready") << r;
  std::string content = bytes("a/ae.safetensors");
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
  write("a/ae.safetensors", content);
  const Finished bad = flux2({"models", "verify"});
  EXPECT_EQ(bad.status, 4);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("a-vae"), HasSubstr("has changed")));
  EXPECT_EQ(info("a-vae")["state"], "damaged");
  EXPECT_EQ(flux2({"models", "verify", "tiny", "--quick"}).status, 0);
}

TEST_F(CliModels, PathsWorkWithADamagedRegistry) {
  synth("a");
  ASSERT_EQ(flux2({"models", "scan", "a", "--add"}).status, 0);
  fs::remove(folder_ / "home/flux2.db-wal"), fs::remove(folder_ / "home/flux2.db-shm");
  write("home/flux2.db", std::string(8192, 'x'));
  const Finished list = flux2({"models", "verify"});
  EXPECT_EQ(list.status, 4);
  EXPECT_THAT(list.err, AllOf(HasSubstr("flux2.db is damaged"), HasSubstr("rename it")));
  const Finished made = generate({"a fox", "-m", "a", "-o", "x.png"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("flux2.db is damaged"));
  EXPECT_EQ(bytes("home/flux2.db"), std::string(8192, 'x'));
}

// An adapter for the bundled model.
void write_adapter(const fs::path& path, float size = 0.2f) {
  const Shape shape = open_weights(pico("flux-2-pico.safetensors"))->find("single_blocks.0.linear2.weight")->shape;
  const auto values = [size](int64_t count) {
    std::vector<float> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(size * std::sin(static_cast<float>(i * 37 % 101)));
    return list;
  };
  const auto down = values(2 * shape[1]), up = values(shape[0] * 2);
  const std::string layer = "diffusion_model.single_blocks.0.linear2.";
  save_tensors(path, {{layer + "lora_A.weight", Tensor::host_copy(down.data(), DType::F32, {2, shape[1]})},
                      {layer + "lora_B.weight", Tensor::host_copy(up.data(), DType::F32, {shape[0], 2})}});
}

TEST_F(CliModels, AdaptersHaveNamesAndAPreferredStrength) {
  write_adapter(folder_ / "some file.safetensors");
  ASSERT_EQ(flux2({"models", "install", "some file.safetensors", "--name", "ink"}).status, 0);
  EXPECT_TRUE(exists("home/models/loras/some file.safetensors"));
  const Image half = picture({"--lora", "some file.safetensors:0.5"}), full = picture({"--lora", "some file.safetensors"});
  ASSERT_NE(half, full);
  EXPECT_EQ(picture({"--lora", "ink"}), full);
  ASSERT_EQ(flux2({"models", "edit", "ink", "--lora-weight", "0.5"}).status, 0);
  EXPECT_EQ(picture({"--lora", "ink"}), half);
  EXPECT_EQ(picture({"--lora", "ink:1"}), full);
  const Finished none = generate({"a fox", "--lora", "inc"});
  EXPECT_EQ(none.status, 3);
  EXPECT_THAT(none.err, HasSubstr("nearest registered ones are ink"));
  EXPECT_THAT(flux2({"lora", "info", "ink"}).out, HasSubstr("of rank 2"));
}

TEST_F(CliModels, AnAdapterThatWasTrainedAgainIsInstalledAgain) {
  fs::create_directories(folder_ / "out");
  write_adapter(folder_ / "out/style.safetensors");
  ASSERT_EQ(flux2({"models", "install", "out/style.safetensors"}).status, 0);
  const std::string before = info("style")["sha256"];
  write_adapter(folder_ / "out/style.safetensors", 0.3f);
  const Json again = json({"models", "install", "out/style.safetensors"});
  EXPECT_EQ(bytes("home/models/loras/style.safetensors"), bytes("out/style.safetensors"));
  EXPECT_EQ(again[0]["name"], "style");
  EXPECT_NE(again[0]["sha256"], before);
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(CliModels, InstallKeepsFilesThatAreNotRegistered) {
  fs::create_directories(folder_ / "out");
  fs::create_directories(folder_ / "home/models/loras");
  write_adapter(folder_ / "out/style.safetensors");
  for (const float size : {0.3f, 0.2f}) {
    write_adapter(folder_ / "home/models/loras/style.safetensors", size);
    const Finished done = flux2({"models", "install", "out/style.safetensors", "--dry-run", "--json"});
    ASSERT_EQ(done.status, 0) << done.err;
    const std::string to = parse_json(done.out)[0]["to"];
    EXPECT_THAT(to, testing::EndsWith(size == 0.3f ? "/style-2.safetensors" : "/style.safetensors")) << "the same file is used";
  }
  write("home/models/loras/style.safetensors", "of another size");
  const Finished done = flux2({"models", "install", "out/style.safetensors"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("loras/style.safetensors is something else, so the copy goes to"));
  EXPECT_EQ(bytes("home/models/loras/style.safetensors"), "of another size");
  EXPECT_EQ(bytes("home/models/loras/style-2.safetensors"), bytes("out/style.safetensors"));
}

TEST_F(CliModels, ConfiguredFoldersAreSearched) {
  synth("elsewhere/toy");
  write("home/config.toml", "[models]\npaths = [\"../elsewhere\"]\n");
  EXPECT_THAT(flux2({"models", "list"}).out, HasSubstr("elsewhere/toy/ae.safetensors"));
  EXPECT_EQ(picture({}), picture({"-m", "elsewhere/toy"}));
  ASSERT_EQ(flux2({"models", "scan", "--add"}).status, 0);
  EXPECT_EQ(picture({}), picture({"-m", "tiny"}));
}

TEST_F(CliModels, StartersShowInstalledParts) {
  const Json sets = json({"models", "starter"});
  EXPECT_GE(sets.size(), 6u);
  const Json one = json({"models", "starter", "Klein_4B"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0]["name"], "flux.2-klein-4b");
  EXPECT_EQ(one[0]["parts"][0]["bytes"], 7'751'105'712);
  EXPECT_FALSE(one[0]["parts"][0]["present"].get<bool>());
  EXPECT_THAT(flux2({"models", "starter", "flux.2-klein-9b"}).out, HasSubstr("gated"));
  EXPECT_EQ(flux2({"models", "starter", "klain"}).status, 3);
}

TEST_F(CliModels, EveryActionHasHelp) {
  for (const char* action : {"list", "info", "scan", "identify", "install", "edit", "relate", "relocate", "remove", "verify",
                             "missing", "orphans", "starter", "synth"}) {
    const Finished help = flux2({"models", action, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr(std::string("flux2 models ") + action + ":"), HasSubstr("Examples:")));
    EXPECT_EQ(flux2({"help", "models", action}).out, help.out);
    EXPECT_THAT(flux2({"models", "--help"}).out, HasSubstr(std::string("\n  ") + action));
  }
}

TEST_F(CliModels, ImageEncodersAreWrittenAndRegistered) {
  const Finished made = flux2({"models", "synth", "--variant", "clip-tiny", "--out", "clip-tiny"});
  ASSERT_EQ(made.status, 0) << made.err;
  const Finished inspected = flux2({"inspect", "clip-tiny/model.safetensors"});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_THAT(inspected.out,
              AllOf(HasSubstr("image encoder"), HasSubstr("CLIP vision 224/32, 2 layers of width 64, projection 48")));
  ASSERT_EQ(flux2({"models", "add", "clip-tiny"}).status, 0);
  EXPECT_THAT(names({"--type", "image_encoder"}), ElementsAre("clip-tiny"));
  const Json tower = info("clip-tiny");
  EXPECT_EQ(tower["state"], "ready");
  EXPECT_EQ(tower["files"].size(), 3u) << tower["files"].dump();
  EXPECT_EQ(tower["probe"]["hidden"], 64);
  EXPECT_EQ(tower["probe"]["context_dim"], 48);
  EXPECT_THAT(flux2({"models", "info", "clip-tiny"}).out, HasSubstr("width 64, projection 48"));

  const Finished wrong = flux2({"models", "synth", "--variant", "clip-tiny", "--blocks", "1,1", "--out", "other"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--blocks does not apply to clip-tiny, which is an image encoder"));
  EXPECT_FALSE(exists("other"));
}

TEST_F(CliModels, ImagePromptsForFlux1AreNamedAndNotRegistered) {
  const auto zeros = [](const Shape& shape) {
    const std::vector<float> values(static_cast<size_t>(shape.numel()));
    return Tensor::host_copy(values.data(), DType::F32, shape);
  };
  save_tensors(folder_ / "redux.safetensors", {{"redux_up.weight", zeros({12, 4})},
                                               {"redux_up.bias", zeros({12})},
                                               {"redux_down.weight", zeros({8, 12})},
                                               {"redux_down.bias", zeros({8})}});
  save_tensors(folder_ / "xlabs.safetensors", {{"ip_adapter_proj_model.proj.weight", zeros({16, 4})},
                                               {"ip_adapter_proj_model.proj.bias", zeros({16})},
                                               {"ip_adapter_proj_model.norm.weight", zeros({4})},
                                               {"ip_adapter_proj_model.norm.bias", zeros({4})}});
  for (const char* file : {"redux.safetensors", "xlabs.safetensors"}) {
    const std::string why = "it was made for FLUX.1 and cannot be used with FLUX.2";
    EXPECT_THAT(flux2({"inspect", file}).out, HasSubstr(why));
    const Finished added = flux2({"models", "add", file});
    EXPECT_NE(added.status, 0);
    EXPECT_THAT(added.err, HasSubstr(why));
  }
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(CliModels, CacheOfQuantisedWeightsIsListedAndCleared) {
  EXPECT_THAT(flux2({"models", "cache"}).out, HasSubstr("empty"));
  const Finished made = generate({"a red circle", "-S", "3", "-o", "a.png", "--quant", "int8", "--quant-cache", "1"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("quantised weights are kept"));
  const Json list = json({"models", "cache", "list"});
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["quant"], "int8");
  EXPECT_THAT(flux2({"models", "cache", "list"}).out, AllOf(HasSubstr("int8"), HasSubstr("transformer"), HasSubstr("total")));
  const Finished again = generate({"a red circle", "-S", "3", "-o", "b.png", "--quant", "int8", "--quant-cache", "1"});
  EXPECT_THAT(again.err, Not(HasSubstr("are kept")));
  EXPECT_EQ(read_image(folder_ / "a.png").pixels, read_image(folder_ / "b.png").pixels);
  EXPECT_THAT(flux2({"models", "cache", "clear"}).out, HasSubstr("deleted"));
  EXPECT_TRUE(json({"models", "cache", "list"}).empty());
  EXPECT_EQ(flux2({"models", "cache", "drop"}).status, 2);

  flux2({"generate", "a red circle", "--size", "64", "--steps", "1", "--text-cache", "1", "-o", "text.png"});
  EXPECT_THAT(flux2({"models", "cache", "list"}).out, HasSubstr("encoded prompts"));
  flux2({"models", "cache", "clear"});
  EXPECT_TRUE(json({"models", "cache", "list"}).empty());
}

}  // namespace
}  // namespace flux2::test
