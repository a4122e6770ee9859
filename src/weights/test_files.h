#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace flux2::testing_files {

// A safetensors file in memory: length, header text, `data_bytes` bytes counting 0, 1, 2, …
inline std::string container(std::string_view header, size_t data_bytes = 0) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

// An empty folder of the running test.
inline std::filesystem::path scratch_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / "flux2_weights" / (std::string(test->test_suite_name()) + "." + test->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// The sentence of the Error that f throws, its hint after a bar; empty when it throws none.
inline std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()) + (e.hint().empty() ? "" : " | " + e.hint().plain());
  }
  return "";
}

// A log that keeps its lines.
struct Lines {
  std::vector<std::string> lines;
  Log log{[this](LogLevel, const std::string& line) { lines.push_back(line); }};
};

}  // namespace flux2::testing_files
