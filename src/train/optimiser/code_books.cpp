#include "train/optimiser/code_books.h"

#include <algorithm>
#include <cmath>

namespace flux2 {

namespace {

// Decade i, 10^(i − 6), holds 2^i values (twice that without signs): the midpoints between equally spaced values from 0.1 to 1.
// Computed in F32, with the
// upper half counted down from 1, as in PyTorch's linspace, which bitsandbytes uses for its code books.
std::array<float, 256> dynamic_book(bool is_signed) {
  std::array<float, 256> book{};
  size_t at = 0;
  for (int i = 0; i < 7; ++i) {
    const int count = 1 << (is_signed ? i : i + 1);
    const auto scale = static_cast<float>(std::pow(10.0, i - 6));
    const float spacing = (1.0f - 0.1f) / static_cast<float>(count);
    const auto boundary = [&](int k) {
      return k < (count + 1) / 2 ? std::fma(spacing, static_cast<float>(k), 0.1f)
                                 : std::fma(-spacing, static_cast<float>(count - k), 1.0f);
    };
    for (int k = 0; k < count; ++k) {
      const float value = scale * ((boundary(k) + boundary(k + 1)) / 2.0f);
      book[at++] = value;
      if (is_signed) book[at++] = -value;
    }
  }
  book[at++] = 0.0f;
  book[at++] = 1.0f;
  std::sort(book.begin(), book.end());
  return book;
}

}  // namespace

const std::array<float, 256>& signed_code_book() {
  static const std::array<float, 256> kBook = dynamic_book(true);
  return kBook;
}

const std::array<float, 256>& unsigned_code_book() {
  static const std::array<float, 256> kBook = dynamic_book(false);
  return kBook;
}

}  // namespace flux2
