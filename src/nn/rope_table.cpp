#include "nn/rope_table.h"

#include <cmath>
#include <unordered_map>

namespace flux2 {

namespace {

constexpr int kPairsPerAxis = 16, kAxes = 4;

Tensor table(Stream& stream, int64_t rows, const std::vector<float>& values) {
  const auto columns = static_cast<int64_t>(values.size()) / std::max<int64_t>(rows, 1);
  return Tensor::from<float>(stream, DType::F32, {rows, columns}, values);
}

}  // namespace

Rope flux2_rope(Stream& stream, std::span<const TokenPosition> positions, double theta) {
  std::array<double, kPairsPerAxis> frequency;
  for (int k = 0; k < kPairsPerAxis; ++k) frequency[static_cast<size_t>(k)] = std::pow(theta, -k / 16.0);
  // A picture has few distinct positions. Each is computed once and then copied.
  struct Segment {
    std::array<float, kPairsPerAxis> cosine, sine;
  };
  std::unordered_map<int32_t, Segment> segments;
  const auto segment_at = [&](int32_t position) -> const Segment& {
    const auto [found, is_new] = segments.try_emplace(position);
    if (is_new)
      for (size_t k = 0; k < kPairsPerAxis; ++k) {
        found->second.cosine[k] = static_cast<float>(std::cos(position * frequency[k]));
        found->second.sine[k] = static_cast<float>(std::sin(position * frequency[k]));
      }
    return found->second;
  };
  std::vector<float> cosine, sine;
  cosine.reserve(positions.size() * kAxes * kPairsPerAxis);
  sine.reserve(cosine.capacity());
  for (const TokenPosition& p : positions)
    for (int32_t position : {p.t, p.h, p.w, p.l}) {
      const Segment& segment = segment_at(position);
      cosine.insert(cosine.end(), segment.cosine.begin(), segment.cosine.end());
      sine.insert(sine.end(), segment.sine.begin(), segment.sine.end());
    }
  const auto rows = static_cast<int64_t>(positions.size());
  return {table(stream, rows, cosine), table(stream, rows, sine), RopePairs::Interleaved};
}

Rope text_rope(Stream& stream, int64_t length, int64_t head_dim, double theta, int64_t first) {
  std::vector<float> frequencies, cosine, sine;
  for (int64_t p = 0; p < head_dim / 2; ++p) {
    const auto exponent = static_cast<float>(2 * p) / static_cast<float>(head_dim);
    frequencies.push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
  }
  cosine.reserve(static_cast<size_t>(length) * frequencies.size());
  sine.reserve(cosine.capacity());
  for (int64_t position = first; position < first + length; ++position)
    for (float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
  return {table(stream, length, cosine), table(stream, length, sine), RopePairs::Halves};
}

}  // namespace flux2
