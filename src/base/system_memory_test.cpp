#include "base/system_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(SystemMemory, IsAlignedAndWritable) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{1} << 20, (size_t{3} << 20) + 5}) {
    const auto memory = system_memory(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0u) << bytes;
    std::memset(memory.get(), 1, bytes);
  }
}

TEST(SystemMemory, AllocationFailureIsAnError) { EXPECT_THROW(system_memory(std::numeric_limits<size_t>::max() / 2), Error); }

TEST(SystemMemory, HasASize) {
  const MemorySize size = system_memory_size();
  EXPECT_GT(size.total, int64_t{64} << 20);
  EXPECT_GT(size.available, 0);
  EXPECT_LE(size.available, size.total);
}

}  // namespace
}  // namespace flux2
