#include "train/data/cache_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/path_exists.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// The names of PyTorch's types that can end a key, longest first: "float8_e4m3fn" must not be taken for something shorter.
constexpr std::array<std::string_view, 19> kTypeNames = {
    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float8_e4m3fn", "float8_e5m2", "complex128", "complex64",
    "bfloat16",        "float16",         "float32",        "float64",       "uint16",      "uint32",     "uint64",
    "int16",           "int32",           "int64",          "uint8",         "int8"};

bool is_digits(std::string_view text) {
  return !text.empty() && text.size() <= 9 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "1920x1080"
std::optional<PixelSize> parse_size(std::string_view text) {
  const size_t x = text.find('x');
  if (x == text.npos || !is_digits(text.substr(0, x)) || !is_digits(text.substr(x + 1))) return {};
  const PixelSize size{std::stoll(std::string(text.substr(0, x))), std::stoll(std::string(text.substr(x + 1)))};
  if (size.width < 1 || size.height < 1) return {};
  return size;
}

std::vector<std::string> files_ending(const fs::path& folder, const std::string& ending) {
  std::vector<std::string> names;
  std::error_code fault;
  for (fs::directory_iterator at(folder, fault), end; !fault && at != end; at.increment(fault)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(".") && name.ends_with(ending)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string latent_ending(const CacheModel& model) { return "_" + model.suffix + ".safetensors"; }
std::string text_ending(const CacheModel& model) { return "_" + model.suffix + "_te.safetensors"; }

}  // namespace

std::string latent_file_name(const std::string& stem, PixelSize original, const CacheModel& model) {
  return fmt::format("{}_{:04}x{:04}{}", stem, original.width, original.height, latent_ending(model));
}

std::string text_file_name(const std::string& stem, const CacheModel& model) { return stem + text_ending(model); }

std::string empty_text_file_name(const CacheModel& model) { return ".empty" + text_ending(model); }

std::optional<LatentFileName> parse_latent_file_name(const std::string& name, const CacheModel& model) {
  const std::string ending = latent_ending(model);
  if (!name.ends_with(ending)) return {};
  const std::string start = name.substr(0, name.size() - ending.size());
  const size_t underscore = start.rfind('_');
  if (underscore == start.npos) return {};
  const auto size = parse_size(std::string_view(start).substr(underscore + 1));
  if (!size) return {};
  return LatentFileName{start.substr(0, underscore), *size};
}

std::vector<std::string> latent_files(const fs::path& folder, const CacheModel& model) {
  return files_ending(folder, latent_ending(model));
}

std::vector<std::string> text_files(const fs::path& folder, const CacheModel& model) {
  return files_ending(folder, text_ending(model));
}

std::string without_dtype(std::string_view key) {
  for (const std::string_view type : kTypeNames)
    if (key.size() > type.size() && key.ends_with(type) && key[key.size() - type.size() - 1] == '_')
      return std::string(key.substr(0, key.size() - type.size() - 1));
  return std::string(key);
}

std::string content_name(std::string_view key) {
  std::string name = without_dtype(key);
  const bool sized = name.starts_with("latents_") || name.starts_with("flip_latents_") || name.starts_with("lossmask_");
  return sized ? name.substr(0, name.rfind('_')) : name;
}

}  // namespace flux2
