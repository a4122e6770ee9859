#include "backend/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "backend/cpu/cpu_stream.h"
#include "tensor/tensor.h"

namespace flux2 {
namespace {

TEST(CpuLevels, EachContainsThoseBeforeIt) {
  CpuFeatures all;
  all.avx2 = all.fma = all.avx512f = all.avx512vnni = true;
  const std::vector<CpuLevel> levels = levels_of(all);
  ASSERT_EQ(levels.size(), 4u);
  EXPECT_EQ(levels[0].name, "scalar");
  EXPECT_EQ(levels[0].features.str(), CpuFeatures{}.str());
  EXPECT_EQ(levels[1].name, "avx2");
  EXPECT_FALSE(levels[1].features.avx512f);
  EXPECT_TRUE(levels[2].features.avx2 && levels[2].features.avx512f);
  EXPECT_EQ(levels[3].features.str(), all.str());
}

TEST(CpuLevels, AreChosenByName) {
  EXPECT_NE(open_cpu({.threads = 1, .level = "scalar"})->description().find("scalar"), std::string::npos);
  EXPECT_THROW(open_cpu({.threads = 1, .level = "mmx"}), Error);
}

Tensor floats(Stream& stream, std::vector<float> values) {
  return Tensor::from<float>(stream, DType::F32, {static_cast<int64_t>(values.size())}, values);
}

Tensor times(const Tensor& x, double factor) {
  Tensor y = Tensor::like(x);
  x.device().kernels().scale({x, y, factor, 0.0});
  return y;
}

// All but the fused forms that a table may leave out, for which ops fall back to the equation.
TEST(CpuDevice, FillsTheWholeTable) {
  for (bool scalar_only : {true, false}) {
    const Kernels table = open_cpu({.threads = 1, .scalar_only = scalar_only})->kernels();
    const auto* entries = reinterpret_cast<void* const*>(&table);
    const size_t fused = offsetof(Kernels, conv2d_add) / sizeof(void*);  // they stand at the end
    for (size_t i = 0; i < fused; ++i) EXPECT_NE(entries[i], nullptr) << "entry " << i;
  }
}

TEST(Tensor, ScalesBelongToRows) {
  const auto device = open_cpu({.threads = 1});
  const auto stream = device->open_stream();
  const int8_t stored[] = {1, -2, 3, 4, 5, -6};
  const float factors[] = {0.5f, 2.0f, 10.0f};
  const Tensor weight = Tensor::host_copy(stored, DType::I8, {3, 2}).with_scales(Tensor::host_copy(factors, DType::F32, {3}));

  EXPECT_EQ(weight.to(*stream).cast(DType::F32).to_floats(), (std::vector<float>{0.5f, -1, 6, 8, 50, -60}));
  EXPECT_EQ(weight.to(*stream).cast(DType::BF16).to_floats(), (std::vector<float>{0.5f, -1, 6, 8, 50, -60}));
  EXPECT_EQ(weight.to(*stream).narrowed(0, 1, 2).cast(DType::F32).to_floats(), (std::vector<float>{6, 8, 50, -60}));
  EXPECT_EQ(weight.to(*stream).narrowed(1, 1, 1).cast(DType::F32).to_floats(), (std::vector<float>{-1, 8, -60}));
  EXPECT_THROW(weight.reshaped({6}), Error);
  EXPECT_THROW(weight.with_scales(Tensor::host_copy(factors, DType::F32, {2})), Error);

  const Tensor whole = weight.with_scales(Tensor::host_copy(factors, DType::F32, {1}));
  EXPECT_EQ(whole.to(*stream).cast(DType::F32).to_floats(), (std::vector<float>{0.5f, -1, 1.5f, 2, 2.5f, -3}));
}

// Activations have a scale per token whatever axes their tokens lie on.
TEST(Tensor, ScalesFollowRowsThroughViews) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  const int8_t stored[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const float factors[] = {1, 10, 100, 1000};
  const Tensor x =
      Tensor::host_copy(stored, DType::I8, {2, 2, 2}).with_scales(Tensor::host_copy(factors, DType::F32, {2, 2})).to(*stream);
  const auto values = [](const Tensor& t) { return t.cast(DType::F32).to_floats(); };
  EXPECT_EQ(values(x), (std::vector<float>{1, 2, 30, 40, 500, 600, 7000, 8000}));
  EXPECT_EQ(values(x.reshaped({4, 2})), values(x));
  EXPECT_EQ(values(x.narrowed(1, 1, 1)), (std::vector<float>{30, 40, 7000, 8000}));
  EXPECT_EQ(values(x.narrowed(2, 0, 1)), (std::vector<float>{1, 30, 500, 7000}));
  EXPECT_THROW(x.reshaped({2, 4}), Error);
  EXPECT_THROW(x.with_scales(Tensor::host_copy(factors, DType::F32, {4})), Error);
}

TEST(CpuDevice, DescribesItself) {
  const auto device = open_cpu({.threads = 3});
  EXPECT_EQ(device->name(), "cpu");
  EXPECT_TRUE(device->is_host());
  EXPECT_NE(device->description().find("3 threads"), std::string::npos) << device->description();
  EXPECT_NE(open_cpu({.threads = 1, .scalar_only = true})->description().find("scalar"), std::string::npos);
  EXPECT_THROW(open_cpu({.threads = -1}), Error);
  EXPECT_GE(physical_cores(), 1);
  EXPECT_FALSE(cpu_name().empty());
}

TEST(CpuDevice, DetectsTheBaselineOfItsArchitecture) {
  const CpuFeatures features = CpuFeatures::detect();
  EXPECT_FALSE(features.neon && features.avx2);
  EXPECT_EQ(CpuFeatures{}.str(), "");
  EXPECT_EQ((CpuFeatures{.neon = true, .bf16 = true}.str()), "neon bf16");
}

TEST(CpuStream, UploadsAndDownloads) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  const Tensor t = floats(*stream, {1, 2, 3});
  EXPECT_EQ(t.to_floats(), (std::vector<float>{1, 2, 3}));
  EXPECT_GT(stream->used_bytes(), 0u);
}

TEST(CpuStream, TensorsOutliveStreamAndDeviceHandles) {
  Tensor t;
  {
    const auto stream = open_cpu({.threads = 2})->open_stream();
    t = floats(*stream, {1, 2, 3});
  }
  EXPECT_EQ(times(t, 2.0).to_floats(), (std::vector<float>{2, 4, 6}));
}

TEST(CpuGraph, ReplayWritesIntoTheTensorsOfTheCapture) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  const Tensor x = floats(*stream, {1, 2, 3});
  Tensor y;
  const auto graph = stream->capture([&] { y = times(times(times(x, 2.0), 3.0), 0.5); });
  const Tensor kept = y;  // the handle of the first run sees every later one
  EXPECT_EQ(kept.to_floats(), (std::vector<float>{3, 6, 9}));
  x.copy_from(floats(*stream, {10, 20, 30}));
  graph->replay();
  EXPECT_EQ(kept.to_floats(), (std::vector<float>{30, 60, 90}));
  EXPECT_EQ(y.raw(), kept.raw());
}

TEST(CpuGraph, MemoryStaysReservedBetweenReplays) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  const Tensor x = floats(*stream, {1, 2, 3});
  Tensor y;
  const auto graph = stream->capture([&] { y = times(times(x, 2.0), 2.0); });
  const Tensor kept = y;
  y = Tensor();
  std::vector<Tensor> others;  // would land on what the graph writes if its memory had gone back to the pool
  for (int i = 0; i < 64; ++i) others.push_back(floats(*stream, {7, 7, 7}));
  graph->replay();
  for (const Tensor& other : others) EXPECT_EQ(other.to_floats(), (std::vector<float>{7, 7, 7}));
  EXPECT_EQ(kept.to_floats(), (std::vector<float>{4, 8, 12}));
}

TEST(CpuGraph, ReusesTemporariesInsideOneCapture) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  const Tensor x = Tensor::empty(*stream, DType::F32, {1 << 18});
  x.fill(1.0);
  const size_t before = stream->used_bytes();
  Tensor y;
  const auto graph = stream->capture([&] {
    y = x;
    for (int i = 0; i < 20; ++i) y = times(y, 2.0);
  });
  EXPECT_LE(stream->used_bytes() - before, 2u * (1 << 20));
  graph->replay();
  EXPECT_EQ(y.narrowed(0, 0, 1).to_floats()[0], 1048576.0f);
}

TEST(CpuGraph, FreesItsMemoryWhenDestroyed) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  const Tensor x = floats(*stream, {1, 2, 3});
  const size_t before = stream->used_bytes();
  {
    Tensor y;
    auto graph = stream->capture([&] { y = times(x, 2.0); });
    graph.reset();
    EXPECT_EQ(y.to_floats(), (std::vector<float>{2, 4, 6}));  // results outlive the graph
  }
  EXPECT_EQ(stream->used_bytes(), before);
}

TEST(CpuGraph, RejectsChangedWorkAndRecovers) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  int64_t n = 4;
  const auto graph = stream->capture([&] { Tensor::empty(*stream, DType::F32, {n}).fill(1.0); });
  n = 100;
  EXPECT_THROW(graph->replay(), Error);
  n = 4;
  EXPECT_NO_THROW(graph->replay());
  EXPECT_THROW(stream->capture([&] { fail(ErrorCode::Cancelled, "stopped"); }), Error);
  EXPECT_EQ(times(floats(*stream, {1}), 2.0).to_floats()[0], 2.0f);  // the stream has left capture mode
  EXPECT_THROW(stream->capture([&] { graph->replay(); }), Error);
}

}  // namespace
}  // namespace flux2
