#include "backend/cpu/memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
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

TEST(MemoryPool, FreedNeighboursServeALargerRequest) {
  const auto pool = std::make_shared<MemoryPool>();
  void* const whole = pool->allocate(8 << 20).get();
  {
    auto a = pool->allocate(2 << 20), b = pool->allocate(2 << 20), c = pool->allocate(4 << 20);
    EXPECT_EQ(pool->cached_bytes(), 0u) << "all three are cut out of one region";
    b.reset(), a.reset();  // b joins neither neighbour, a joins b
    EXPECT_EQ(pool->allocate(4 << 20).get(), whole);
  }
  EXPECT_EQ(pool->allocate(8 << 20).get(), whole);
  EXPECT_EQ(pool->cached_bytes(), size_t{8} << 20);
}

TEST(MemoryPool, FreeRegionsMakeRoomForALargerOne) {
  const auto pool = std::make_shared<MemoryPool>();
  { const auto a = pool->allocate(4 << 20), b = pool->allocate(4 << 20), c = pool->allocate(8 << 20); }
  const auto kept = pool->allocate(1 << 20);  // in one of the regions of 4 MiB, which then has to stay
  const auto large = pool->allocate(12 << 20);
  EXPECT_EQ(pool->used_bytes(), size_t{13} << 20);
  EXPECT_LE(pool->used_bytes() + pool->cached_bytes(), size_t{18} << 20) << "16 MiB were in use, and an eighth may be kept";
}

TEST(MemoryPool, ManySmallBlocksShareARegion) {
  const auto pool = std::make_shared<MemoryPool>();
  std::vector<std::shared_ptr<void>> blocks;
  blocks.reserve(1000);
  for (int i = 0; i < 1000; ++i) blocks.push_back(pool->allocate(1000));
  EXPECT_EQ(pool->used_bytes() + pool->cached_bytes(), size_t{1} << 20);
}

// A server runs batches of several sizes in turn for weeks. Blocks differ in size and live for different times.
TEST(MemoryPool, RepeatedWorkTakesNothingMoreFromTheSystem) {
  const auto pool = std::make_shared<MemoryPool>();
  size_t held = 0;
  for (int round = 0; round < 40; ++round) {
    std::mt19937_64 random(static_cast<uint64_t>(round % 5));  // five kinds of batches
    std::vector<std::shared_ptr<void>> blocks;
    for (int i = 0; i < 300; ++i) {
      blocks.push_back(pool->allocate((1 + random() % 64) << (10 + round % 5 + static_cast<int>(random() % 3))));
      if (blocks.size() > 12) blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(random() % blocks.size()));
    }
    const size_t total = pool->used_bytes() + pool->cached_bytes();
    if (round >= 20) {
      EXPECT_LE(total, pool->peak_bytes() + pool->peak_bytes() / 2) << "gaps between blocks";
      EXPECT_EQ(total, held) << "round " << round;
    }
    held = total;
  }
}

TEST(MemoryPool, BlocksNeverOverlap) {
  const auto pool = std::make_shared<MemoryPool>();
  std::mt19937_64 random(7);
  struct Held {
    std::shared_ptr<void> block;
    size_t bytes;
    uint8_t value;
  };
  std::vector<Held> all;
  for (int i = 0; i < 3000; ++i) {
    const size_t bytes = 1 + random() % (i % 10 == 0 ? 1 << 20 : 10'000);
    all.push_back({pool->allocate(bytes), bytes, static_cast<uint8_t>(i)});
    std::memset(all.back().block.get(), all.back().value, bytes);
    if (all.size() <= 20) continue;
    const auto leaves = all.begin() + static_cast<std::ptrdiff_t>(random() % all.size());
    const auto* values = static_cast<const uint8_t*>(leaves->block.get());
    ASSERT_TRUE(std::all_of(values, values + leaves->bytes, [&](uint8_t v) { return v == leaves->value; })) << "block " << i;
    all.erase(leaves);
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
