#include "backend/cuda/matmul_plans.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"

namespace flux2 {

namespace {

constexpr size_t kWords = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t);
static_assert(sizeof(cublasLtMatmulAlgo_t) == kWords * sizeof(uint64_t));

std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_text(const std::string& text) {
  if (text.size() != 16 * kWords) return std::nullopt;
  cublasLtMatmulAlgo_t algorithm{};
  for (size_t i = 0; i < kWords; ++i) {
    const char *begin = text.data() + 16 * i, *end = begin + 16;
    if (std::from_chars(begin, end, algorithm.data[i], 16).ptr != end) return std::nullopt;
  }
  return algorithm;
}

std::string file_name(std::string gpu) {
  for (char& c : gpu)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
  int driver = 0;
  cudaDriverGetVersion(&driver);
  return fmt::format("{}-driver{}-cublaslt{}.json", gpu, driver, cublasLtGetVersion());
}

}  // namespace

MatmulPlans::MatmulPlans(const std::filesystem::path& folder, const std::string& gpu_name)
    : file_(folder.empty() ? folder : folder / file_name(gpu_name)), by_product_(read()) {}

std::map<std::string, std::string> MatmulPlans::read() const {
  std::map<std::string, std::string> plans;
  std::error_code failed;
  if (file_.empty() || !std::filesystem::exists(file_, failed)) return plans;
  try {
    const Json json = read_json(file_);
    for (const auto& [product, algorithm] : json.at("plans").items()) plans[product] = algorithm.get<std::string>();
  } catch (const std::exception&) {
    plans.clear();
  }
  return plans;
}

std::optional<cublasLtMatmulAlgo_t> MatmulPlans::find(const std::string& product) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_product_.find(product);
  return found == by_product_.end() ? std::nullopt : from_text(found->second);
}

void MatmulPlans::remember(const std::string& product, const cublasLtMatmulAlgo_t& algorithm) {
  const std::lock_guard lock(mutex_);
  by_product_[product] = to_text(algorithm);
  by_product_.merge(read());  // another process may have added some
  constexpr size_t kMostPlans = 10'000;
  if (by_product_.size() > kMostPlans) by_product_ = {{product, to_text(algorithm)}};
  try {
    const std::string text = Json{{"plans", by_product_}}.dump(1) + "\n";
    AtomicFile file(file_);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const Error&) {}
}

}  // namespace flux2
