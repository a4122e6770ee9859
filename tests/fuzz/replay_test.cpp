// Runs every file of the corpus through every fuzz target: what was found once stays mended. Built with the other tests, so the
// builds with sanitizers run it too.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "tests/fuzz/target.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class Replay : public testing::TestWithParam<std::string> {};

TEST_P(Replay, WholeCorpus) {
  const fs::path corpus = test::source_folder() / "tests/fuzz/corpus";
  EXPECT_TRUE(fs::is_directory(corpus / GetParam())) << "a target needs seeds";
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(corpus)) {
    if (!entry.is_regular_file()) continue;
    const std::string bytes = content_of(entry.path());
    SCOPED_TRACE(entry.path().string());
    try {
      flux2_fuzz::targets().at(GetParam())(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    } catch (const Error&) {
      // Refused: as good as read.
    }
    ++files;
  }
  EXPECT_GT(files, 50u);
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const auto& [name, target] : flux2_fuzz::targets()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, testing::ValuesIn(target_names()), [](const auto& target) { return target.param; });

TEST(FuzzCorpus, EveryFolderOfTheCorpusHasItsTarget) {
  for (const auto& folder : fs::directory_iterator(test::source_folder() / "tests/fuzz/corpus"))
    EXPECT_TRUE(flux2_fuzz::targets().contains(folder.path().filename().string())) << folder.path();
}

}  // namespace
}  // namespace flux2
