#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "tensor/tensor.h"
#include "train/data/cache_model.h"
#include "weights/stored_tensor.h"

// What latent and text caches have in common.
namespace flux2 {

constexpr const char* kCacheVersion = "1.0.1";  // of musubi-tuner's format

// Throws Incompatible if the metadata of a cache names another model.
void check_architecture(const std::map<std::string, std::string>& metadata, const CacheModel& model);

std::vector<float> floats_of(const StoredTensor& tensor);
Tensor rounded_tensor(const std::vector<float>& values, DType dtype, const Shape& shape);  // F32, BF16 or F16, on the host

void replace_nans(std::vector<float>& values, const std::string& name, const std::filesystem::path& path, const Log& log);

}  // namespace flux2
