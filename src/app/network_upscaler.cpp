#include "app/network_upscaler.h"

#include "image/resize.h"

namespace flux2 {

NetworkUpscaler::NetworkUpscaler(const std::filesystem::path& file, const EngineOptions& options)
    : engine_(options), loaded_(engine_, file), name_(file.stem().string()) {}

Image NetworkUpscaler::enlarge(const Image& image, int width, int height, EnlargeOptions options) const {
  if (options.tile == 0) options.tile = loaded_.usual_tile();
  Image large = loaded_.enlarge(image, options);
  return large.width == width && large.height == height ? large : resize(large, width, height);
}

}  // namespace flux2
