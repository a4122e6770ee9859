#pragma once

#include <cublasLt.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace flux2 {

// Algorithms that were found fastest by timing, by the description of the product, remembered in a file so that later
// runs start at once and give the same bytes. A file serves one GPU model, driver and library version, which its name
// tells. Shared by the streams of a device.
class MatmulPlans {
 public:
  // Reads what is there; a damaged file counts as none. With an empty folder nothing is timed or remembered.
  MatmulPlans(const std::filesystem::path& folder, const std::string& gpu_name);

  bool active() const { return !file_.empty(); }
  std::optional<cublasLtMatmulAlgo_t> find(const std::string& product) const;
  // Keeps the choice and writes the file; a file that cannot be written only costs the next run its start.
  void remember(const std::string& product, const cublasLtMatmulAlgo_t& algorithm);

 private:
  std::map<std::string, std::string> read() const;

  std::filesystem::path file_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> by_product_;  // the algorithm's 64 bytes in hexadecimal
};

}  // namespace flux2
