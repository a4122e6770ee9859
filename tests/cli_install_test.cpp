// `flux2 models install` from a hub and from plain addresses, both on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "image/read_image.h"
#include "tests/support/fake_hub.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kWeights = "diffusion_pytorch_model.safetensors";

std::string hash_of(const std::string& bytes) { return sha256(std::as_bytes(std::span(bytes))); }

class CliInstall : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    ASSERT_EQ(flux2({"models", "synth", "--layout", "diffusers", "--out", "toy"}).status, 0);
    std::map<std::string, FakeHub::File> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "toy"))
      if (entry.is_regular_file()) {
        const std::string path = entry.path().lexically_relative(folder_ / "toy").string();
        files[path] = {.content = read_text_file(entry.path()), .large = path.ends_with(".safetensors")};
      }
    hub_ = std::make_unique<FakeHub>(files);
  }

  Finished online(std::vector<std::string> words) const {
    Start s = start(std::move(words));
    s.environment["HF_ENDPOINT"] = hub_->endpoint();
    s.environment["HF_HOME"] = (folder_ / "hf").string();
    return run(s);
  }
  Json json(std::vector<std::string> words) const {
    words.push_back("--json");
    const Finished done = online(std::move(words));
    EXPECT_EQ(done.status, 0) << done.err;
    return done.status == 0 ? parse_json(done.out) : Json::array();
  }

  std::unique_ptr<FakeHub> hub_;
};

TEST_F(CliInstall, ARepositoryBecomesNamedParts) {
  const Json plan = json({"models", "install", "owner/model", "--dry-run"});
  ASSERT_GE(plan.size(), 5u);
  EXPECT_FALSE(plan[0]["present"].get<bool>());
  EXPECT_EQ(hub_->storage().body_bytes_sent(), 0u);
  EXPECT_FALSE(exists("home/flux2.db"));

  const Json parts = json({"models", "install", "owner/model", "--name", "toy"});
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0]["name"], "toy");
  EXPECT_EQ(parts[0]["type"], "main");
  for (const Json& part : parts) {
    EXPECT_EQ(part["source"]["kind"], "hub");
    EXPECT_EQ(part["source"]["ref"], "owner/model");
    EXPECT_EQ(part["source"]["revision"], FakeHub::kCommit);
    EXPECT_THAT(part["path"].get<std::string>(), HasSubstr("hf/hub/models--owner--model/snapshots"));
    for (const Json& file : part["files"])
      EXPECT_EQ(file["sha256"], hash_of(read_text_file(file["path"].get<std::string>()))) << file;
  }
  const Finished named = online({"generate", "a fox", "-s", "2", "-S", "3", "-m", "toy", "-o", "a.png"});
  ASSERT_EQ(named.status, 0) << named.err;
  ASSERT_EQ(online({"generate", "a fox", "-s", "2", "-S", "3", "-o", "b.png", "-m", (folder_ / "toy").string()}).status, 0);
  EXPECT_EQ(read_image(folder_ / "a.png"), read_image(folder_ / "b.png"));

  // Everything is cached, so it works offline and nothing is sent.
  const uint64_t sent = hub_->storage().body_bytes_sent();
  EXPECT_EQ(json({"models", "install", "owner/model", "--offline"}).size(), 4u);
  EXPECT_EQ(json({"models", "install", "owner/model"}).size(), 4u);
  EXPECT_EQ(hub_->storage().body_bytes_sent(), sent);
  EXPECT_EQ(json({"models", "list"}).size(), 5u);  // and the bundled one

  // Removing the models also deletes their files: first the links, then the blobs.
  ASSERT_EQ(online({"models", "remove", "toy", "--files", "-y"}).status, 0);
  EXPECT_FALSE(fs::exists(parts[0]["path"].get<std::string>()));
  EXPECT_FALSE(exists("hf/hub/models--owner--model/blobs/" + hash_of(bytes("toy/transformer/" + kWeights))));
  EXPECT_TRUE(exists("hf/hub/models--owner--model/blobs/" + hash_of(bytes("toy/vae/" + kWeights))));
}

TEST_F(CliInstall, OnePartOfARepository) {
  const Json parts = json({"models", "install", "owner/model::vae", "--name", "v"});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0]["type"], "vae");
  EXPECT_EQ(parts[0]["name"], "v");
  EXPECT_EQ(parts[0]["files"][1]["sha256"], hash_of(bytes("toy/vae/" + kWeights)));
  const Json plain = json({"models", "install", "owner/model::vae", "--local-dir", "plain"});
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0]["path"], (folder_ / "plain/vae").string());
  EXPECT_EQ(plain[0]["name"], "plain-vae");
}

TEST_F(CliInstall, UrlIsStoredInTheRightFolder) {
  const std::string vae = bytes("toy/vae/" + kWeights);
  const HttpServer server(
      [&](const ServedRequest& r) { return r.target.ends_with("page") ? Reply{.body = "<html>no</html>"} : Reply{.body = vae}; });
  const Json parts = json({"models", "install", server.url() + "/files/some-vae.safetensors"});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0]["path"], (folder_ / "home/models/vae/some-vae.safetensors").string());
  EXPECT_EQ(parts[0]["source"]["kind"], "url");
  EXPECT_EQ(parts[0]["source"]["ref"], server.url() + "/files/some-vae.safetensors");
  EXPECT_EQ(parts[0]["sha256"], hash_of(vae));
  EXPECT_FALSE(parts[0]["in_place"].get<bool>());
}

TEST_F(CliInstall, ErrorsSayWhatToDo) {
  const Finished unknown = online({"models", "install", "klain-4b"});
  EXPECT_EQ(unknown.status, 3);
  EXPECT_THAT(unknown.err, HasSubstr("flux.2-klein-4b"));
  hub_->gated = "\"auto\"";
  hub_->on_hub = [](const ServedRequest& r) -> std::optional<Reply> {
    if (r.target.find("/resolve/") == std::string::npos) return std::nullopt;
    return Reply{.status = 403, .headers = {{"X-Error-Code", "GatedRepo"}, {"X-Error-Message", "Access is restricted"}}};
  };
  const Finished gated = online({"models", "install", "owner/model", "--token", "hf_secret"});
  EXPECT_EQ(gated.status, 8) << gated.err;
  EXPECT_THAT(gated.err, AllOf(HasSubstr("owner/model"), Not(HasSubstr("hf_secret"))));
  const Finished offline = online({"models", "install", "owner/model", "--offline"});
  EXPECT_NE(offline.status, 0);
  EXPECT_FALSE(exists("home/models"));
}

}  // namespace
}  // namespace flux2::test
