#pragma once

#include <cstdint>
#include <filesystem>

#include "model/upscaler_config.h"

namespace flux2 {

struct ConvertedUpscaler {
  UpscalerConfig config;
  int64_t tensors = 0, bytes = 0;
};

// Makes a safetensors file of an upscaler that PyTorch stored as a pickle (.pth). The only place that reads pickles; see
// weights/torch_pickle.h for what it accepts. Throws BadFile for other pickles and Incompatible for other networks.
ConvertedUpscaler convert_upscaler(const std::filesystem::path& pickle, const std::filesystem::path& out);

}  // namespace flux2
