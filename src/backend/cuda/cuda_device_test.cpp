#include "backend/cuda/cuda_device.h"

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "backend/cuda/cuda_test.h"

namespace flux2 {

namespace {

class CudaDeviceTest : public CudaTest {};

std::vector<float> counting(size_t n, float from = 0.0f) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), from);
  return values;
}

TEST(CudaDeviceCount, IsNeverNegativeAndRejectsMissingDevices) {
  const int count = cuda_device_count();
  EXPECT_GE(count, 0);
  try {
    open_cuda(count);
    FAIL() << "opened a GPU that is not there";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Device);
  }
}

TEST_F(CudaDeviceTest, DescribesItself) {
  EXPECT_EQ(device->name(), "cuda:0");
  EXPECT_FALSE(device->is_host());
  EXPECT_NE(device->description().find("SMs"), std::string::npos) << device->description();
}

TEST_F(CudaDeviceTest, PoolReusesMemory) {
  EXPECT_EQ(stream->used_bytes(), 0u);
  void* first = nullptr;
  {
    const auto a = stream->allocate(1000);
    first = a.get();
    EXPECT_GE(stream->used_bytes(), 1000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  }
  EXPECT_EQ(stream->used_bytes(), 0u);
  const auto b = stream->allocate(990);
  EXPECT_EQ(b.get(), first);
  const auto c = stream->allocate(990);
  EXPECT_NE(c.get(), first);
  EXPECT_NE(stream->allocate(0).get(), nullptr);
  EXPECT_GE(stream->peak_bytes(), stream->used_bytes());
}

TEST_F(CudaDeviceTest, PoolSplitsAndMergesBlocks) {
  constexpr size_t kMegabyte = size_t{1} << 20;
  const auto address = [](const std::shared_ptr<void>& p) { return reinterpret_cast<uintptr_t>(p.get()); };
  uintptr_t whole = 0;
  {
    const auto large = stream->allocate(64 * kMegabyte);
    whole = address(large);
  }
  {
    std::vector<std::shared_ptr<void>> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(stream->allocate(16 * kMegabyte));
    for (const auto& p : parts) EXPECT_LT(address(p) - whole, 64 * kMegabyte);
    EXPECT_EQ(stream->used_bytes(), 64 * kMegabyte);
    parts.erase(parts.begin() + 1, parts.begin() + 3);  // the middle is free again, as one
    EXPECT_EQ(address(stream->allocate(32 * kMegabyte)), whole + 16 * kMegabyte);
  }
  EXPECT_EQ(stream->used_bytes(), 0u);
  EXPECT_EQ(address(stream->allocate(64 * kMegabyte)), whole);
  EXPECT_EQ(stream->peak_bytes(), 64 * kMegabyte);
}

TEST_F(CudaDeviceTest, AGraphKeepsNoMoreThanItsWorkNeededAtOnce) {
  constexpr int64_t kMegabyte = int64_t{1} << 20;
  const auto work = [&] {
    for (int64_t megabytes : {40, 10, 30, 25, 15}) Tensor::empty(*stream, DType::F32, {megabytes * kMegabyte / 4}).fill(1.0);
  };
  auto graph = stream->capture(work);
  EXPECT_EQ(stream->used_bytes(), static_cast<size_t>(40 * kMegabyte));
  graph.reset();
  EXPECT_EQ(stream->used_bytes(), 0u);
}

// One stream's idle memory makes room for another's.
TEST_F(CudaDeviceTest, StreamsShareALimit) {
  constexpr size_t kMegabyte = size_t{1} << 20;
  const auto limited = open_cuda(0, {.memory_limit = 100 * kMegabyte});
  const auto first = limited->open_stream(), second = limited->open_stream();
  first->allocate(80 * kMegabyte);
  const auto taken = second->allocate(90 * kMegabyte);
  EXPECT_NE(taken.get(), nullptr);
  EXPECT_THROW(first->allocate(20 * kMegabyte), Error);
}

// A small piece of a large segment would keep all of it: klein-9B's decoder found no room under 6 GiB although enough was free.
TEST_F(CudaDeviceTest, MemoryIsNotFragmentedUnderALimit) {
  constexpr size_t kMegabyte = size_t{1} << 20;
  const auto limited = open_cuda(0, {.memory_limit = 100 * kMegabyte})->open_stream();
  limited->allocate(60 * kMegabyte);
  const auto kept = limited->allocate(10 * kMegabyte);
  const auto large = limited->allocate(85 * kMegabyte);
  EXPECT_NE(large.get(), nullptr);
  EXPECT_THROW(limited->allocate(10 * kMegabyte), Error);
}

TEST_F(CudaDeviceTest, OutOfMemoryLeavesTheStreamUsable) {
  const auto kept = stream->allocate(1 << 20);
  try {
    stream->allocate(size_t{1} << 46);
    FAIL() << "64 TiB were found";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::OutOfMemory);
  }
  EXPECT_EQ(Tensor::from(*stream, DType::F32, {3}, std::span<const float>(counting(3))).to_floats(), counting(3));
}

// Each allocation fails once, with the attempt after it: the pool gives back what lies idle and tries again.
TEST_F(CudaDeviceTest, EveryAllocationMayFail) {
  const auto work = [](Stream& on) {
    for (size_t megabytes : {1, 3, 7, 20}) {
      const std::vector<float> values = counting(megabytes << 18);
      const Tensor t = Tensor::from(on, DType::F32, {static_cast<int64_t>(values.size())}, std::span<const float>(values));
      EXPECT_EQ(t.to_floats(), values);
    }
  };
  for (int at = 1; at <= 12; ++at) {
    int calls = 0;
    bool fails = true;
    const auto limited =
        open_cuda(0, {.allow_allocation = [&](size_t) { return !fails || (++calls != at && calls != at + 1); }})->open_stream();
    try {
      work(*limited);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::OutOfMemory) << at;
    }
    fails = false;
    work(*limited);
  }
}

TEST_F(CudaDeviceTest, UploadsAndDownloads) {
  for (size_t n : {size_t{1}, size_t{1000}, size_t{20'000'003}}) {  // the last takes several staging chunks
    const auto values = counting(n);
    EXPECT_EQ(Tensor::from(*stream, DType::F32, {static_cast<int64_t>(n)}, std::span<const float>(values)).to_floats(), values)
        << n;
  }
  auto reused = counting(100'000);
  const Tensor t = Tensor::from(*stream, DType::F32, {100'000}, std::span<const float>(reused));
  std::fill(reused.begin(), reused.end(), -1.0f);  // the upload has read it
  EXPECT_EQ(t.to_floats(), counting(100'000));
}

TEST_F(CudaDeviceTest, ReplaysACapturedChainOnNewInputs) {
  const Tensor x = Tensor::from(*stream, DType::F32, {1024}, std::span<const float>(counting(1024)));
  Tensor result;
  auto graph = stream->capture([&] {
    const auto constant = counting(1024, 5.0f);
    const Tensor c = Tensor::from(*stream, DType::F32, {1024}, std::span<const float>(constant));
    Tensor doubled = Tensor::like(x), summed = Tensor::like(x);
    kernels().scale({x, doubled, 2.0, 0.0});
    kernels().binary({Binary::Add, doubled, c, summed});
    doubled = Tensor();  // given back inside: the next tensor may take its place
    Tensor squared = Tensor::like(x);
    kernels().unary({Unary::Square, summed, squared});
    result = squared;
  });
  for (float start : {0.0f, 100.0f}) {
    const auto values = counting(1024, start);
    stream->upload(x.raw(), values.data(), values.size() * sizeof(float));
    // Eager work between replays must not get the graph's memory.
    for (int i = 0; i < 4; ++i) Tensor::empty(*stream, DType::F32, {1024}).fill(-7.0);
    graph->replay();
    std::vector<double> wanted(1024);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = std::pow(2.0 * values[i] + 5.0 + static_cast<double>(i), 2);
    const Tensor noise = blank({1024}, DType::F32);
    expect_close(result, wanted, 1e-6, 0, "replay");
  }
  const size_t used = stream->used_bytes();
  graph.reset();
  result = Tensor();
  EXPECT_LT(stream->used_bytes(), used);
}

TEST_F(CudaDeviceTest, FailedCaptureLeavesTheStreamUsable) {
  int runs = 0;
  const Tensor x = blank({16}, DType::F32);
  EXPECT_THROW(stream->capture([&] {
    x.fill(1.0);
    if (++runs == 2) fail(ErrorCode::Cancelled, "enough");
  }),
               Error);
  runs = 0;
  EXPECT_THROW(stream->capture([&] {
    if (++runs == 2) x.to_floats();  // waits
  }),
               Error);
  x.fill(3.0);
  EXPECT_EQ(x.to_floats(), std::vector<float>(16, 3.0f));
}

TEST_F(CudaDeviceTest, TimesOpsByNameAndProductsByShape) {
  const Tensor x = random({64, 32}, DType::BF16), w = random({16, 32}, DType::BF16), y = blank({64, 16}, DType::BF16);
  const auto times = stream->time_ops([&] {
    for (int i = 0; i < 3; ++i) kernels().linear({x, w, nullptr, y});
    kernels().unary({Unary::Silu, y, y});
  });
  ASSERT_EQ(times.size(), 2u);
  const OpTime& product = times[0].calls == 3 ? times[0] : times[1];
  const OpTime& other = times[0].calls == 3 ? times[1] : times[0];
  EXPECT_EQ(product.op, "linear 64x16x32");
  EXPECT_EQ(product.flop, 3 * 2.0 * 64 * 16 * 32);
  EXPECT_GT(product.seconds, 0);
  EXPECT_EQ(other.op, "silu");
  EXPECT_EQ(other.bytes, 2 * 2.0 * 64 * 16);
}

TEST_F(CudaDeviceTest, RemembersTimedProductsAndGivesTheSameBytes) {
  std::string pattern = (std::filesystem::temp_directory_path() / "plansXXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  const auto product = [&] {
    const auto timed = open_cuda(0, {.plan_folder = folder});
    const auto other = timed->open_stream();
    generator.seed(5);
    const Tensor x = random({300, 512}, DType::BF16).to(*other), w = random({264, 512}, DType::BF16).to(*other);
    const Tensor y = Tensor::empty(*other, DType::BF16, {300, 264});
    timed->kernels().linear({x, w, nullptr, y});
    return y.to_floats();
  };
  const auto first = product();
  EXPECT_FALSE(std::filesystem::is_empty(folder));
  EXPECT_EQ(product(), first);
  std::filesystem::remove_all(folder);
}

TEST_F(CudaDeviceTest, NamesUnsupportedDtypes) {
  const Tensor x = blank({4}, DType::F64), y = blank({4}, DType::F64);
  try {
    kernels().unary({Unary::Silu, x, y});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("silu"), std::string::npos) << e.what();
  }
}

}  // namespace

}  // namespace flux2
