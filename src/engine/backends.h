#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tensor/device.h"

namespace flux2 {

// The GPU half of the engine: cuda.cpp is compiled if CMake finds a CUDA toolkit, otherwise no_cuda.cpp.
int gpu_count();
std::string gpu_problem(int index);  // why a GPU cannot be used; empty when it can
std::shared_ptr<Device> open_gpu(int index, const std::filesystem::path& plan_folder = {}, int64_t memory_limit = 0);
std::vector<DeviceReport> gpu_reports();

}  // namespace flux2
