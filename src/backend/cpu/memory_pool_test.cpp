#include "backend/cpu/memory_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(MemoryPool, BlocksAreAlignedAndDistinct) {
  const auto pool = std::make_shared<MemoryPool>();
  std::vector<std::shared_ptr<void>> blocks;
  for (size_t bytes : {0, 1, 63, 64, 65, 1000, 4097, 3 << 20}) {
    blocks.push_back(pool->allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().get()) % 64, 0u) << bytes;
    std::memset(blocks.back().get(), static_cast<int>(blocks.size()), bytes);
  }
  for (size_t i = 1; i < blocks.size(); ++i)
    EXPECT_EQ(*static_cast<uint8_t*>(blocks[i].get()), i + 1) << "block " << i << " was overwritten by another";
}

TEST(MemoryPool, FreedBlocksServeRequestsOfAboutTheirSize) {
  const auto pool = std::make_shared<MemoryPool>();
  void* first = pool->allocate(5 << 20).get();
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_GE(pool->cached_bytes(), size_t{5} << 20);
  const auto again = pool->allocate((5 << 20) - 1000);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(pool->cached_bytes(), 0u);
  EXPECT_NE(pool->allocate(1 << 20).get(), first);
}

TEST(MemoryPool, CountsUsedAndPeak) {
  const auto pool = std::make_shared<MemoryPool>();
  auto a = pool->allocate(1 << 20), b = pool->allocate(1 << 20);
  EXPECT_EQ(pool->used_bytes(), size_t{2} << 20);
  a.reset();
  EXPECT_EQ(pool->used_bytes(), size_t{1} << 20);
  EXPECT_EQ(pool->peak_bytes(), size_t{2} << 20);
}

TEST(MemoryPool, MeasuresThePeakOfEachPhase) {
  const auto pool = std::make_shared<MemoryPool>();
  const auto kept = pool->allocate(1 << 20);
  pool->allocate(4 << 20);
  EXPECT_EQ(pool->restart_peak(), size_t{5} << 20);
  pool->allocate(2 << 20);
  EXPECT_EQ(pool->restart_peak(), size_t{3} << 20);
  EXPECT_EQ(pool->restart_peak(), size_t{1} << 20);
  EXPECT_EQ(pool->peak_bytes(), size_t{5} << 20);
}

TEST(MemoryPool, KeepsLittleMoreThanThePeak) {
  const auto pool = std::make_shared<MemoryPool>();
  for (size_t mib = 1; mib <= 40; ++mib) {
    const auto block = pool->allocate(mib << 20);
    EXPECT_LE(pool->used_bytes() + pool->cached_bytes(), pool->peak_bytes() + pool->peak_bytes() / 8);
  }
}

TEST(MemoryPool, OutOfMemoryNamesTheRequestedSize) {
  const auto pool = std::make_shared<MemoryPool>();
  for (size_t bytes : {size_t{1} << 50, ~size_t{0}}) {
    try {
      pool->allocate(bytes);
      FAIL() << bytes << " bytes were given";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::OutOfMemory);
      EXPECT_NE(std::string(e.what()).find(std::to_string(bytes)), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(MemoryPool, ThreadsMayFreeWhatOthersAllocated) {
  auto pool = std::make_shared<MemoryPool>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([pool, t] {
      for (size_t i = 0; i < 500; ++i) {
        const auto block = pool->allocate(64 * (i % 17 + 1));
        std::memset(block.get(), t, 64 * (i % 17 + 1));
        EXPECT_EQ(static_cast<uint8_t*>(block.get())[64 * (i % 17)], t);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(MemoryPool, BlocksOutliveTheirPoolsName) {
  auto pool = std::make_shared<MemoryPool>();
  const std::weak_ptr<MemoryPool> watched = pool;
  auto block = pool->allocate(100);
  pool.reset();
  ASSERT_FALSE(watched.expired());  // the block keeps it
  std::memset(block.get(), 1, 100);
  EXPECT_GE(watched.lock()->used_bytes(), 100u);
  block.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace flux2
