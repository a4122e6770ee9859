#include "hub/remote/hub_settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "tests/support/fake_hub.h"

namespace flux2 {
namespace {

using Set = std::map<std::string, std::string>;

HubSettings with(const Set& set, const std::string& token = {}) {
  return hub_settings([&](const char* name) { return set.contains(name) ? set.at(name).c_str() : nullptr; }, token);
}

TEST(HubSettings, Defaults) {
  const HubSettings s = with({{"HOME", "/home/me"}});
  EXPECT_EQ(s.endpoint, "https://huggingface.co");
  EXPECT_EQ(s.cache, "/home/me/.cache/huggingface/hub");
  EXPECT_EQ(s.token, "");
  EXPECT_FALSE(s.offline);
  EXPECT_TRUE(s.symlinks);
  EXPECT_EQ(s.transfer_timeout_s, 10);
}

TEST(HubSettings, CacheFolderCanBeMoved) {
  EXPECT_EQ(with({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache, "/x/huggingface/hub");
  EXPECT_EQ(with({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "~/hf"}}).cache, "/h/hf/hub");
  EXPECT_EQ(with({{"HF_HOME", "/hf"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache, "/old");
  EXPECT_EQ(with({{"HUGGINGFACE_HUB_CACHE", "/old"}, {"DISK", "/d"}, {"HF_HUB_CACHE", "$DISK/a/${DISK}x/$NOT/${NOT"}}).cache,
            "/d/a//dx/$NOT/${NOT");
}

TEST(HubSettings, WordsForTrue) {
  for (const char* yes : {"1", "on", "Yes", "TRUE"}) EXPECT_TRUE(with({{"HF_HUB_OFFLINE", yes}}).offline) << yes;
  for (const char* no : {"", "0", "off", "no", "2"}) EXPECT_FALSE(with({{"HF_HUB_OFFLINE", no}}).offline) << no;
  EXPECT_TRUE(with({{"TRANSFORMERS_OFFLINE", "1"}}).offline);
  EXPECT_FALSE(with({{"HF_HUB_DISABLE_SYMLINKS", "1"}}).symlinks);
  EXPECT_EQ(with({{"HF_HUB_ETAG_TIMEOUT", "2.5"}}).metadata_timeout_s, 2.5);
  EXPECT_THROW(with({{"HF_HUB_DOWNLOAD_TIMEOUT", "soon"}}), Error);
  EXPECT_EQ(with({{"HF_ENDPOINT", "http://localhost:8080//"}}).endpoint, "http://localhost:8080");
  EXPECT_THROW(with({{"HF_ENDPOINT", "hub"}}), Error);
}

TEST(HubSettings, TheFirstTokenWins) {
  const test::ScratchFolder home;
  std::ofstream(home.path() / "token") << "  from-file\n";
  Set set{{"HF_HOME", home.path().string()}};
  EXPECT_EQ(with(set).token, "from-file");
  set["HUGGING_FACE_HUB_TOKEN"] = "legacy";
  EXPECT_EQ(with(set).token, "legacy");
  set["HF_TOKEN"] = "environment";
  EXPECT_EQ(with(set).token, "environment");
  EXPECT_EQ(with(set, "given").token, "given");
  set["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1";
  EXPECT_EQ(with(set).token, "");
  EXPECT_EQ(with(set, "given").token, "given");
}

TEST(HubSettings, WithoutAHomeFolderNoFileOfTheCurrentFolderIsTheToken) {
  const test::ScratchFolder folder;
  std::ofstream(folder.path() / "token") << "not a token of ours";
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_EQ(with({}).token, "");
  std::filesystem::current_path(before);
}

TEST(HubSettings, TokenIsSentOnlyToTheEndpoint) {
  HubSettings s = with({{"HF_TOKEN", "t"}});
  EXPECT_EQ(s.token_for("https://huggingface.co/owner/model"), "t");
  EXPECT_EQ(s.token_for("http://huggingface.co/owner/model"), "");
  EXPECT_EQ(s.token_for("https://cdn.huggingface.co/x"), "");
  s.endpoint = "http://mirror.example";
  EXPECT_EQ(s.token_for("http://mirror.example/x"), "");
  s.endpoint = "http://127.0.0.1:80";
  EXPECT_EQ(s.token_for("http://127.0.0.1/x"), "t");
  EXPECT_EQ(s.token_for("http://127.0.0.1:81/x"), "");
}

}  // namespace
}  // namespace flux2
