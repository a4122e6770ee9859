#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/upscaling.h"

namespace flux2 {

// An upscaler from a file with the device that it runs on. One thread uses it at a time.
class NetworkUpscaler {
 public:
  NetworkUpscaler(const std::filesystem::path& file, const EngineOptions& options);

  int scale() const { return loaded_.config().scale; }
  const std::string& name() const { return name_; }  // of its file
  // The image at this size: enlarged by the network's scale, then brought to the size with Lanczos. A tile of 0 is the usual one
  // of the device.
  Image enlarge(const Image& image, int width, int height, EnlargeOptions options) const;
  // What the network makes of the whole image before it is rounded, [3, H, W] in [0, 1]; in host memory.
  Tensor values(const Image& image) const { return loaded_.values(image); }

 private:
  Engine engine_;
  LoadedUpscaler loaded_;
  std::string name_;
};

}  // namespace flux2
