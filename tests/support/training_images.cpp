#include "tests/support/training_images.h"

#include <fmt/format.h>

#include <fstream>

#include "image/write_image.h"
#include "weights/weight_source.h"

namespace flux2::test {

void write_training_images(const std::filesystem::path& folder, const std::string& name, int count, const DrawPixel& draw) {
  std::filesystem::create_directories(folder);
  for (int i = 0; i < count; ++i) {
    Image image(64, 64, 3);
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) draw(i, x, y, image.at(x, y));
    save_image(folder / fmt::format("{}{}.png", name, i), encode_png(image));
    std::ofstream(folder / fmt::format("{}{}.txt", name, i)) << name << " number " << i << "\n";
  }
}

void write_bars(const std::filesystem::path& folder, int count) {
  write_training_images(folder, "bars", count, [count](int i, int x, int y, uint8_t* rgb) {
    rgb[0] = static_cast<uint8_t>(x < 64 / count * i ? 230 : 20);
    rgb[1] = static_cast<uint8_t>(30 * i);
    rgb[2] = static_cast<uint8_t>(y * 3);
  });
}

std::map<std::string, std::vector<float>> trained_values(const std::filesystem::path& file) {
  std::map<std::string, std::vector<float>> all;
  const auto weights = open_weights(file);
  for (const StoredTensor& t : weights->tensors())
    if (t.dtype && is_float(*t.dtype)) all[t.name] = weights->open(t.name).to_floats();
  return all;
}

}  // namespace flux2::test
