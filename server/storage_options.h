#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace flux2 {

// Where a server and its workers keep jobs and images.
struct StorageOptions {
  std::filesystem::path data;               // the data folder
  std::string database = {};                // "postgres://…"; empty: flux2.db in the data folder
  std::string images = {};                  // a folder or "s3://bucket/prefix"; empty: the data folder
  uint64_t image_cache = 4ull << 30;        // bytes of local copies of images in an S3-compatible store
  std::chrono::milliseconds lease{30'000};  // how long a job stays with a worker that does not answer
};

}  // namespace flux2
