#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/support/paths.h"
#include "tests/support/subprocess.h"

namespace flux2::test {

namespace fs = std::filesystem;

// The program in a folder of its own, with the bundled model, on the CPU.
class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "flux2-cli-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::create_directories(folder_ / "home");
  }
  void TearDown() override { fs::remove_all(folder_); }

  Start start(std::vector<std::string> words) const {
    words.insert(words.begin(), program());
    return {
        .arguments = std::move(words),
        .folder = folder_.string(),
        .environment = {{"FLUX2_HOME", (folder_ / "home").string()}, {"FLUX2_BUNDLED", pico_folder()}, {"FLUX2_DEVICE", "cpu"}}};
  }
  Finished flux2(std::vector<std::string> words, const std::string& input = {}) const {
    Start s = start(std::move(words));
    s.input = input;
    return run(s);
  }
  // A quick picture; two steps show everything but beauty.
  Finished generate(std::vector<std::string> words, const std::string& input = {}) const {
    words.insert(words.begin(), {"generate", "-s", "2"});
    return flux2(std::move(words), input);
  }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).string();
  }
  std::string bytes(const std::string& name) const { return read_text_file(folder_ / name); }
  bool exists(const std::string& name) const { return fs::exists(folder_ / name); }
  size_t files_in(const std::string& name) const {
    size_t n = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / name)) n += entry.is_regular_file();
    return n;
  }

  fs::path folder_;
};

inline std::string pico(const std::string& file) { return pico_folder() / file; }

}  // namespace flux2::test
