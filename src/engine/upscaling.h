#pragma once

#include <filesystem>
#include <memory>

#include "engine/engine.h"
#include "pipeline/enlarge.h"

namespace flux2 {

// An upscaler on the device of an engine, which must outlive it. One thread uses it at a time.
class LoadedUpscaler {
 public:
  LoadedUpscaler(const Engine& engine, const std::filesystem::path& file);
  LoadedUpscaler(const Engine& engine, const WeightSource& weights);  // which are copied

  const UpscalerConfig& config() const { return network_.config; }
  // The side of the tiles that this device handles well.
  int usual_tile() const { return stream_->device().is_host() ? kUpscaleTile : kUpscaleGpuTile; }
  Image enlarge(const Image& image, const EnlargeOptions& options) const {
    return flux2::enlarge(network_, *stream_, image, options);
  }
  int64_t peak_bytes() const { return static_cast<int64_t>(stream_->peak_bytes()); }
  Tensor values(const Image& image) const { return enlarged_values(network_, *stream_, image); }

 private:
  std::shared_ptr<Stream> stream_;
  Upscaler network_;
};

}  // namespace flux2
