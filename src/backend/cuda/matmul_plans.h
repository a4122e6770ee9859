#pragma once

#include <cublasLt.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace flux2 {

// The fastest algorithms found by timing, by the description of the product. They are stored in a file, so that later runs start
// faster and give the same bytes. The file name contains the GPU model, driver and library version. Shared by the streams of a
// device.
class MatmulPlans {
 public:
  // Reads the file; a damaged file is ignored. If `folder` is empty, nothing is timed or stored.
  MatmulPlans(const std::filesystem::path& folder, const std::string& gpu_name);

  bool active() const { return !file_.empty(); }
  std::optional<cublasLtMatmulAlgo_t> find(const std::string& product) const;
  // Stores the choice and writes the file. If the file cannot be written, the next run has to time again.
  void remember(const std::string& product, const cublasLtMatmulAlgo_t& algorithm);

 private:
  std::map<std::string, std::string> read() const;

  std::filesystem::path file_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> by_product_;  // the algorithm's 64 bytes in hexadecimal
};

}  // namespace flux2
