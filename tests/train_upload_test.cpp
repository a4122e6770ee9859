// `flux2 train` with uploads to a hub on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "image/write_image.h"
#include "tests/support/fake_uploads.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class TrainUpload : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    fs::create_directories(folder_ / "images");
    for (int i = 0; i < 2; ++i) {
      Image image(64, 64, 3);
      for (int y = 0; y < 64; ++y)
        for (int x = 0; x < 64; ++x) image.at(x, y)[i] = static_cast<uint8_t>(4 * x);
      save_image(folder_ / "images" / fmt::format("{}.png", i), encode_png(image));
      write(fmt::format("images/{}.txt", i), "a ramp");
    }
    write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt"},
      "datasets": [{"image_directory": "images", "cache_directory": "cache"}]})");
  }

  // Two steps; the token comes from the environment unless an option has one.
  Finished train(std::vector<std::string> more, std::map<std::string, std::string> environment = {}) const {
    std::vector<std::string> words = {"train",
                                      "data.json",
                                      "--network_dim",
                                      "2",
                                      "--output_dir",
                                      "out",
                                      "--output_name",
                                      "ramp",
                                      "--seed",
                                      "7",
                                      "--timestep_sampling",
                                      "flux2_shift",
                                      "--max_train_steps",
                                      "2",
                                      "--profile",
                                      "exact",
                                      "--huggingface_repo_id",
                                      FakeHub::kRepository};
    words.insert(words.end(), more.begin(), more.end());
    Start s = start(std::move(words));
    s.environment["HF_ENDPOINT"] = hub_.endpoint();
    s.environment["HF_HOME"] = (folder_ / "hf").string();
    s.environment.insert(environment.begin(), environment.end());
    return run(s);
  }
  // Whether a text is in any file of the output.
  bool output_mentions(const std::string& text) const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "out"))
      if (entry.is_regular_file() && read_text_file(entry.path()).find(text) != std::string::npos) return true;
    return false;
  }

  FakeHub hub_{{}};
};

TEST_F(TrainUpload, AdaptersAndStatesArrive) {
  const FakeUploads uploads(hub_);
  for (const bool in_background : {false, true}) {
    fs::remove_all(folder_ / "out");  // the second run would warn that it replaces the first one's files
    std::vector<std::string> options = {
        "--save_every_n_steps",       "1", "--save_state", "--save_state_to_huggingface", "--huggingface_path_in_repo",
        in_background ? "two" : "one"};
    options.insert(options.end(), {"--huggingface_token", FakeUploads::kToken, "--log_config", "--logging_dir", "out/logs"});
    if (in_background) options.push_back("--async_upload");
    const Finished done = train(options);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, Not(HasSubstr("warning"))) << done.err;
    EXPECT_THAT(uploads.faults(), ElementsAre());
    const auto arrived = uploads.files();
    size_t expected = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "out")) {
      const std::string path = entry.path().lexically_relative(folder_ / "out").generic_string();
      if (!entry.is_regular_file() || (!path.ends_with(".safetensors") && path.find("-state/") == path.npos)) continue;
      ++expected;
      const auto found = arrived.find((in_background ? "two/" : "one/") + path);
      ASSERT_NE(found, arrived.end()) << path;
      EXPECT_TRUE(found->second == read_text_file(entry.path())) << path;
    }
    EXPECT_GE(expected, 6u);  // two adapters and two states of at least two files
    EXPECT_EQ(arrived.size(), in_background ? 2 * expected : expected);
    EXPECT_FALSE(output_mentions(FakeUploads::kToken));
    EXPECT_THAT(done.out + done.err, Not(HasSubstr(FakeUploads::kToken)));
  }
  EXPECT_EQ(uploads.visibility(), "private");
  EXPECT_EQ(uploads.summaries().at(0), "ramp-step00000001.safetensors: step 1");
}

TEST_F(TrainUpload, UsesTheTokenOfDownloadsAndUploadsNoStates) {
  const FakeUploads uploads(hub_);
  const Finished done =
      train({"--save_state_on_train_end", "--huggingface_repo_visibility", "public"}, {{"HF_TOKEN", FakeUploads::kToken}});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(uploads.visibility(), "public");
  ASSERT_EQ(uploads.files().size(), 1u);
  EXPECT_TRUE(uploads.files().at("ramp.safetensors") == bytes("out/ramp.safetensors"));
}

TEST_F(TrainUpload, OnlyOneOfSeveralProcessesUploads) {
  const FakeUploads uploads(hub_);
  const Finished done = train({"--ranks", "2"}, {{"HF_TOKEN", FakeUploads::kToken}});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(uploads.faults(), ElementsAre());
  EXPECT_THAT(uploads.summaries(), ElementsAre("ramp.safetensors: step 2"));
}

TEST_F(TrainUpload, AFailureIsAWarning) {
  hub_.on_hub = [](const ServedRequest&) { return Reply{.status = 500}; };
  for (const bool in_background : {false, true}) {
    std::vector<std::string> options = {"--huggingface_token", "hf_x"};
    if (in_background) options.push_back("--async_upload");
    const Finished done = train(options);
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("warning: ramp.safetensors was not uploaded: "));
    EXPECT_THAT(done.err, HasSubstr("500"));
    EXPECT_EQ(done.out, "out/ramp.safetensors\n");
    EXPECT_TRUE(exists("out/ramp.safetensors"));
  }
}

TEST_F(TrainUpload, WithoutATokenOrANetworkNothingIsSent) {
  const Finished nameless = train({});
  EXPECT_EQ(nameless.status, 0) << nameless.err;
  EXPECT_THAT(nameless.err, HasSubstr("nothing is uploaded to owner/model: no token is set"));
  const Finished offline = train({"--huggingface_token", "hf_x"}, {{"HF_HUB_OFFLINE", "1"}});
  EXPECT_EQ(offline.status, 0) << offline.err;
  EXPECT_THAT(offline.err, HasSubstr("nothing is uploaded to owner/model: HF_HUB_OFFLINE is set"));
  EXPECT_EQ(hub_.hub().requests().size(), 0u);
}

TEST_F(TrainUpload, AStateOfTheHubIsResumed) {
  const Finished whole = train({"--save_every_n_steps", "1", "--save_state", "--no_metadata"}, {{"HF_HUB_OFFLINE", "1"}});
  ASSERT_EQ(whole.status, 0) << whole.err;
  for (const auto& entry : fs::directory_iterator(folder_ / "out/ramp-step00000001-state"))
    hub_.files["states/first/" + entry.path().filename().string()] = {.content = read_text_file(entry.path())};
  // Without the header, which has the date.
  const auto values = [&] {
    const std::string file = bytes("out/ramp.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof(header));
    return file.substr(8 + header);
  };
  const std::string last = values();
  // As a value of its own, and as musubi-tuner's flag beside the place in `resume`.
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--resume_from_huggingface", "owner/model/states/first"},
                                              {"--resume", "owner/model/states/first:main", "--resume_from_huggingface"}}) {
    fs::remove_all(folder_ / "out");
    std::vector<std::string> words = how;
    words.insert(words.end(), {"--no_metadata", "--huggingface_token", "hf_x"});
    const Finished resumed = train(words);
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_TRUE(values() == last);
    EXPECT_THAT(read_text_file(folder_ / "out/ramp.jsonl"), Not(HasSubstr("\"step\":1,")));  // it began with step 2
  }
}

TEST_F(TrainUpload, MistakesAreNamedBeforeTraining) {
  const Finished nowhere = train({"--resume_from_huggingface"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("resume_from_huggingface needs one place of a state: write owner/name/folder"));
  const Finished short_place = train({"--resume_from_huggingface", "owner/model"});
  EXPECT_EQ(short_place.status, 2);
  EXPECT_THAT(short_place.err, HasSubstr("\"owner/model\" is not a folder of a repository"));
  const Finished missing = train({"--resume_from_huggingface", "owner/model/states/none"});
  EXPECT_NE(missing.status, 0);
  EXPECT_THAT(missing.err, HasSubstr("states/none"));
  const Finished name = train({"--huggingface_repo_id", "model"});
  EXPECT_EQ(name.status, 2);
  EXPECT_THAT(name.err, HasSubstr("\"model\" is not a repository; write owner/name"));
  EXPECT_FALSE(exists("out"));
}

}  // namespace
}  // namespace flux2::test
