#include "app/text_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "engine/engine.h"
#include "pipeline/text_states.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class TextStatesOnDisk : public testing::Test {
 protected:
  TextStatesOnDisk() {
    std::string pattern = (fs::temp_directory_path() / "flux2-text-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ModelQuery query;
    query.model = test::pico_folder().string();
    files_ = locate_model(query, {});
  }
  ~TextStatesOnDisk() override { fs::remove_all(folder_); }

  TextCache cache(const std::string& how = "cpu exact", int64_t limit = 1 << 30) const {
    return TextCache(folder_ / "text", limit, files_, how, folder_ / "hashes.json");
  }
  size_t stored() const {
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "text")) n += entry.is_regular_file();
    return n;
  }

  fs::path folder_;
  ModelFiles files_;
  Engine engine_{{.device = "cpu", .threads = 1, .profile = Profile::Exact}};
};

TEST_F(TextStatesOnDisk, ComeBackExactly) {
  const auto first = engine_.open(files_), second = engine_.open(files_);
  EXPECT_FALSE(cache().bring(*first, "a fox"));
  const Tensor states = text_states(*first, "a fox", "text", {});
  cache().keep(*first, "a fox");
  EXPECT_EQ(stored(), 1u);
  ASSERT_TRUE(cache().bring(*second, "a fox"));
  EXPECT_EQ(second->prompt_cache.find("a fox").to_floats(), states.to_floats());
  EXPECT_EQ(second->prompt_cache.find("a fox").shape(), states.shape());
}

TEST_F(TextStatesOnDisk, BelongToOnePromptAndOneWayOfComputing) {
  const auto session = engine_.open(files_), other = engine_.open(files_);
  text_states(*session, "a fox", "text", {});
  cache().keep(*session, "a fox");
  EXPECT_FALSE(cache().bring(*other, "a cat"));
  EXPECT_FALSE(cache("cpu fast").bring(*other, "a fox"));
  files_.defaults.text_layers = {1, 2, 3};
  EXPECT_FALSE(cache().bring(*other, "a fox"));
}

TEST_F(TextStatesOnDisk, BelongToOneSystemMessage) {
  const auto session = engine_.open(files_), other = engine_.open(files_);
  text_states(*session, "a fox", "text", {});
  cache().keep(*session, "a fox");
  files_.defaults.system_message = "Describe the image that is asked for.";
  EXPECT_FALSE(cache().bring(*other, "a fox"));
}

TEST_F(TextStatesOnDisk, StayBelowTheLimit) {
  const auto session = engine_.open(files_);
  int64_t bytes = 0;
  for (const char* prompt : {"a fox", "a cat", "an owl"}) {
    text_states(*session, prompt, "text", {});
    cache("cpu exact", bytes == 0 ? 1 << 30 : 2 * bytes + 100).keep(*session, prompt);
    for (const auto& entry : fs::directory_iterator(folder_ / "text")) {
      bytes = static_cast<int64_t>(entry.file_size());
      fs::last_write_time(entry.path(), entry.last_write_time() - std::chrono::seconds(10));  // each round makes them older
    }
  }
  EXPECT_EQ(stored(), 2u);
  const auto fresh = engine_.open(files_);
  EXPECT_FALSE(cache().bring(*fresh, "a fox"));  // the oldest
  EXPECT_TRUE(cache().bring(*fresh, "an owl"));
}

TEST_F(TextStatesOnDisk, DamagedFilesAreNotUsed) {
  const auto session = engine_.open(files_), fresh = engine_.open(files_);
  text_states(*session, "a fox", "text", {});
  cache().keep(*session, "a fox");
  for (const auto& entry : fs::directory_iterator(folder_ / "text")) std::ofstream(entry.path()) << "garbage";
  EXPECT_FALSE(cache().bring(*fresh, "a fox"));
}

}  // namespace
}  // namespace flux2
