#include "pipeline/latents.h"

namespace flux2 {

namespace {

std::vector<float> transposed(const std::vector<float>& x, size_t rows, size_t columns) {
  check(x.size() == rows * columns, "{} values are not {} × {}", x.size(), rows, columns);
  std::vector<float> y(x.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
  return y;
}

}  // namespace

std::vector<float> to_tokens(const std::vector<float>& planes, int64_t channels) {
  return transposed(planes, static_cast<size_t>(channels), planes.size() / static_cast<size_t>(channels));
}

std::vector<float> to_planes(const std::vector<float>& tokens, int64_t channels) {
  return transposed(tokens, tokens.size() / static_cast<size_t>(channels), static_cast<size_t>(channels));
}

std::vector<TokenPosition> text_positions(int64_t length) {
  std::vector<TokenPosition> p(static_cast<size_t>(length));
  for (int64_t l = 0; l < length; ++l) p[static_cast<size_t>(l)].l = static_cast<int32_t>(l);
  return p;
}

std::vector<TokenPosition> picture_positions(int64_t rows, int64_t columns, int32_t t) {
  std::vector<TokenPosition> p;
  p.reserve(static_cast<size_t>(rows * columns));
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < columns; ++x) p.push_back({t, static_cast<int32_t>(y), static_cast<int32_t>(x), 0});
  return p;
}

}  // namespace flux2
