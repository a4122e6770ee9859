#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "image/write_image.h"
#include "train/data/cache_model.h"

namespace flux2::test {

// A folder for one test, with images and captions.
class DataFolder {
 public:
  DataFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "flux2-data-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;
  ~DataFolder() { std::filesystem::remove_all(path_); }

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  void text(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << content;
  }

  // A PNG whose samples depend on its name and size.
  Image image(const std::string& name, int width, int height, int channels = 3) const {
    Image image(width, height, channels);
    uint32_t x = 7;
    for (const char c : name) x = x * 31 + static_cast<unsigned char>(c);
    for (uint8_t& sample : image.pixels) sample = static_cast<uint8_t>((x = x * 1664525u + 1013904223u) >> 24);
    save(name, image);
    return image;
  }

  void save(const std::string& name, const Image& image) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    save_image(path_ / name, encode_image(image, ImageFormat::Png));
  }

  // An image with a caption beside it.
  void item(const std::string& stem, int width, int height, const std::string& caption) const {
    image(stem + ".png", width, height);
    text(stem + ".txt", caption);
  }

 private:
  std::filesystem::path path_;
};

// A model with small text states.
inline CacheModel tiny_cache_model() { return {"f2xtiny", "flux_2_custom_tiny", 4, 6}; }

// The message of what `f` throws; empty if it throws nothing.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Keeps what is logged.
struct KeptLog {
  std::vector<std::string> warnings, notes;
  Log log() {
    return Log(
        [this](LogLevel level, const std::string& text) { (level == LogLevel::Warning ? warnings : notes).push_back(text); });
  }
};

// Latents whose channel c is the mean over 16×16 pixels of colour c mod 3, plus c.
inline std::vector<float> mean_latents(int width, int height, const std::vector<float>& planes) {
  const int columns = width / 16, rows = height / 16;
  std::vector<float> latents;
  for (int c = 0; c < 128; ++c)
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) {
        float sum = 0;
        for (int y = 16 * row; y < 16 * row + 16; ++y)
          for (int x = 16 * column; x < 16 * column + 16; ++x)
            sum += planes[static_cast<size_t>((c % 3 * height + y) * width + x)];
        latents.push_back(sum / 256 + static_cast<float>(c));
      }
  return latents;
}

// States [4, 6] that begin with the length of the text. All of them are exact in bf16.
inline std::vector<std::vector<float>> length_states(const std::vector<std::string>& texts) {
  std::vector<std::vector<float>> states;
  for (const std::string& text : texts) {
    states.emplace_back(24, 0.5f);
    states.back()[0] = static_cast<float>(text.size());
    states.back()[1] = text.empty() ? 0.0f : static_cast<float>(text[0]);
  }
  return states;
}

}  // namespace flux2::test
