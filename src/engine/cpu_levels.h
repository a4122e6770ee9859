#pragma once

#include <string>
#include <vector>

namespace flux2 {

// Names of the sets of instructions that this processor runs, slowest first: "scalar", "avx2", "avx512". The device "cpu:avx2"
// uses no instruction beyond its set.
std::vector<std::string> cpu_levels();

}  // namespace flux2
