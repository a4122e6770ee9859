#include "hub/synth_values.h"

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace flux2 {

namespace {

// 4096 quantiles are finer than bf16 resolves, and the table stays in the first-level cache.
constexpr int kQuantileBits = 12;
constexpr int64_t kPerBlock = 8;  // two values from each of philox's four words

// FNV-1a.
uint64_t hash_of(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

// x with P(N(0,1) < x) = p, by bisection of erfc: called a few thousand times in all.
double normal_quantile(double p) {
  double low = -6, high = 6;
  for (int i = 0; i < 50; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

const std::vector<float>& normal_quantiles() {
  static const std::vector<float> table = [] {
    std::vector<float> q(size_t{1} << kQuantileBits);
    for (size_t i = 0; i < q.size(); ++i)
      q[i] = static_cast<float>(normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(q.size())));
    return q;
  }();
  return table;
}

bool ends_in_one_of(const std::string& name, std::initializer_list<const char*> endings) {
  for (const char* ending : endings)
    if (name.ends_with(ending)) return true;
  return false;
}

}  // namespace

ValueRange sane_values(const std::string& name, const Shape& shape, ParameterKind kind) {
  switch (kind) {
    case ParameterKind::Statistic: return name.ends_with("running_var") ? ValueRange{3.0f, 0.3f} : ValueRange{0.0f, 0.1f};
    case ParameterKind::Vector: return name.ends_with(".bias") ? ValueRange{0.0f, 0.02f} : ValueRange{1.0f, 0.05f};
    case ParameterKind::Table: return {0.0f, 0.02f};
    case ParameterKind::Matrix:
    case ParameterKind::Conv: break;
  }
  float gain = 1.0f;
  if (ends_in_one_of(name, {"_attn.proj.weight", "_mlp.2.weight", "linear2.weight", "o_proj.weight", "down_proj.weight",
                            "conv2.weight", "proj_out.weight"}))
    gain = 0.5f;
  // The conditioning vector has a deviation of about 0.35 and passes a SiLU first: gates come out near 0.3.
  if (name.find("_modulation") != std::string::npos) gain = 1.5f;
  const int64_t inputs = shape.numel() / std::max<int64_t>(shape[0], 1);
  return {0.0f, gain / std::sqrt(static_cast<float>(std::max<int64_t>(inputs, 1)))};
}

SynthValues::SynthValues(uint64_t seed, const std::string& name, const ValueRange& range, DType dtype)
    : seed_(seed), stream_(hash_of(name)), dtype_(dtype) {
  require(dtype == DType::BF16 || dtype == DType::F32, "invented weights are BF16 or F32, not {}", name_of(dtype));
  for (float q : normal_quantiles()) {
    const float value = range.mean + range.deviation * q;
    if (dtype == DType::F32) f32_.push_back(value);
    else bf16_.push_back(to_bf16(value).bits);
  }
}

template <class T>
void SynthValues::fill_range(int64_t begin, std::span<T> out, const std::vector<T>& table) const {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  T* at = out.data();
  for (int64_t block = begin / kPerBlock; block * kPerBlock < end; ++block) {
    const auto words = philox(seed_, static_cast<uint64_t>(block), stream_);
    T values[kPerBlock];
    for (size_t i = 0; i < 4; ++i) {
      values[2 * i] = table[(words[i] & 0xffff) >> (16 - kQuantileBits)];
      values[2 * i + 1] = table[words[i] >> (32 - kQuantileBits)];
    }
    const int64_t from = std::max(begin, block * kPerBlock), to = std::min(end, (block + 1) * kPerBlock);
    for (int64_t i = from; i < to; ++i) *at++ = values[i - block * kPerBlock];
  }
}

void SynthValues::fill(int64_t begin, std::span<std::byte> out, ThreadPool& pool) const {
  const int64_t width = bytes_for(dtype_, 1), count = static_cast<int64_t>(out.size()) / width;
  pool.parallel_ranges(count, 1 << 16, [&](int64_t from, int64_t to) {
    std::byte* target = out.data() + from * width;
    const auto n = static_cast<size_t>(to - from);
    if (dtype_ == DType::F32) fill_range<float>(begin + from, {reinterpret_cast<float*>(target), n}, f32_);
    else fill_range<uint16_t>(begin + from, {reinterpret_cast<uint16_t*>(target), n}, bf16_);
  });
}

Tensor random_tensor(Stream& stream, DType dtype, const Shape& shape, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  ThreadPool pool(0);
  SynthValues(1, name, {0.0f, 1.0f}, DType::F32).fill(0, std::as_writable_bytes(std::span(values)), pool);
  return Tensor::from<float>(stream, dtype, shape, values);
}

}  // namespace flux2
