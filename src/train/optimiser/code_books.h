#pragma once

#include <array>

namespace flux2 {

// The 256 values that an 8-bit optimiser state can have, relative to the largest of its block, in ascending order. They lie on
// seven decades, closer together near ±1 than near 0.
const std::array<float, 256>& signed_code_book();
const std::array<float, 256>& unsigned_code_book();

}  // namespace flux2
