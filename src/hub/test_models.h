#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "hub/synth.h"
#include "tensor/shape.h"
#include "weights/gguf_writer.h"

namespace flux2::testing_models {

// An empty folder for the running test.
inline std::filesystem::path scratch_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / "flux2_hub" / (std::string(test->test_suite_name()) + "." + test->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

struct Stripped {
  std::string name;
  Shape shape;
  std::string dtype = "BF16";
  std::string data = {};  // the values of a small tensor; empty: zeros
};

// A safetensors file with a true header whose data is a hole in the file: a large model that takes no space.
inline std::filesystem::path write_stripped(const std::filesystem::path& path, const std::vector<Stripped>& tensors,
                                            const std::map<std::string, std::string>& metadata = {}) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const Stripped& t : tensors) {
    const uint64_t width = t.dtype == "F32" ? 4 : t.dtype == "BF16" || t.dtype == "F16" ? 2 : 1;
    const uint64_t end = at + width * static_cast<uint64_t>(t.shape.numel());
    header[t.name] = {
        {"dtype", t.dtype}, {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())}, {"data_offsets", {at, end}}};
    at = end;
  }
  const std::string text = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i));
  write_file(path, file + text);
  std::filesystem::resize_file(path, 8 + text.size() + at);
  std::fstream filled(path, std::ios::binary | std::ios::in | std::ios::out);
  for (const Stripped& t : tensors)
    if (!t.data.empty())
      filled.seekp(static_cast<std::streamoff>(8 + text.size() + header[t.name]["data_offsets"][0].get<uint64_t>())) << t.data;
  return path;
}

// The same as a GGUF file; dtypes have flux2's names.
std::filesystem::path write_stripped_gguf(const std::filesystem::path& path, const std::vector<Stripped>& tensors,
                                          const std::vector<GgufPair>& pairs = {});

// The tensors of a FLUX.2 transformer, with their original names.
std::vector<Stripped> transformer_tensors(const Flux2Config& config, const std::string& prefix = "");
std::vector<Stripped> vae_tensors(const VaeConfig& config, const std::string& prefix = "");
std::vector<Stripped> qwen3_tensors(int64_t width, int64_t layers = 27, const std::string& prefix = "model.");

// A tiny complete model in that folder.
inline std::filesystem::path tiny_model(const std::filesystem::path& folder, SynthOptions options = {}) {
  options.out = folder;
  synthesise_model(options);
  return folder;
}

// The Error that f throws, as "code: message | hint"; empty if it throws none.
inline std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(name_of(e.code())) + ": " + e.what() + (e.hint().empty() ? "" : " | " + e.hint().plain());
  }
  return "";
}

}  // namespace flux2::testing_models
