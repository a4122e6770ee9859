#include "weights/quantised_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "tensor/dtype.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class QuantisedCacheIn : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write_source(1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write_source(float seed) {
    std::vector<float> values(64 * 96);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(seed + static_cast<float>(i) * 0.37f);
    matrix_ = Tensor::host_copy(values.data(), DType::F32, {64, 96});
    save_tensors(source_, {{"w", matrix_}});
  }
  QuantisedNetwork network(Quant quant, const std::string& part = "transformer") const {
    return {.files = {source_}, .part = part, .quant = quant, .matrices = {{"w", {64, 96}}}};
  }
  QuantisedCacheOptions options(int64_t limit = int64_t{1} << 30) const {
    return {.folder = folder_ / "cache", .version = "flux2 1", .limit = limit, .keep_free = 0};
  }
  Log log() {
    return Log([this](LogLevel level, const std::string& text) {
      if (level == LogLevel::Warning) warnings_.push_back(text);
    });
  }
  Tensor keep(QuantisedCache& cache, const QuantisedNetwork& n) {
    ThreadPool threads(1);
    Tensor q = quantise(matrix_, n.quant, threads);
    cache.keep(n, {{"w", q}}, false);
    cache.finish();
    return q;
  }

  fs::path folder_ = fs::path(testing::TempDir()) /
                     ("quantised_cache_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  fs::path source_ = folder_ / "model.safetensors";
  Tensor matrix_;
  std::vector<std::string> warnings_;
};

void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())), 0);
  ASSERT_EQ(a.scales().defined(), b.scales().defined());
  if (!a.scales().defined()) return;
  EXPECT_EQ(a.scales().to_floats(), b.scales().to_floats());
}

TEST_F(QuantisedCacheIn, ReturnsTheSameBytesForEveryType) {
  for (const Quant quant : {Quant::Int8, Quant::Q8_0, Quant::Q4_0, Quant::Fp8}) {
    QuantisedCache cache(options(), log());
    EXPECT_EQ(cache.find(network(quant)), nullptr);
    const Tensor made = keep(cache, network(quant));
    QuantisedCache next(options(), log());
    const auto found = next.find(network(quant));
    ASSERT_NE(found, nullptr) << name_of(quant);
    expect_same(cached_matrix(*found, "w", {64, 96}, quant), made);
    EXPECT_EQ(next.find(network(quant, "text encoder")), nullptr);
  }
  const auto entries = list_quantised(options().folder);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].source, source_.string());
  EXPECT_EQ(entries[0].part, "transformer");
  EXPECT_EQ(warnings_.size(), 4u) << "each process says once that it writes to the cache";
}

TEST_F(QuantisedCacheIn, AChangedSourceOrVersionIsAnotherEntry) {
  QuantisedCache cache(options(), log());
  keep(cache, network(Quant::Int8));
  QuantisedCacheOptions newer = options();
  newer.version = "flux2 2";
  EXPECT_EQ(QuantisedCache(newer, log()).find(network(Quant::Int8)), nullptr);
  write_source(2);
  EXPECT_EQ(cache.find(network(Quant::Int8)), nullptr);
  const Tensor made = keep(cache, network(Quant::Int8));
  expect_same(cached_matrix(*cache.find(network(Quant::Int8)), "w", {64, 96}, Quant::Int8), made);
}

TEST_F(QuantisedCacheIn, ADamagedEntryIsDeleted) {
  QuantisedCache cache(options(), log());
  keep(cache, network(Quant::Q8_0));
  const fs::path path = cache.path_of(network(Quant::Q8_0));
  for (const auto& damage : std::vector<std::function<void()>>{[&] { fs::resize_file(path, fs::file_size(path) - 1); },
                                                               [&] { fs::resize_file(path, 5); },
                                                               [&] {
                                                                 save_tensors(path, {{"other", matrix_}});
                                                               }}) {
    damage();
    const size_t before = warnings_.size();
    EXPECT_EQ(cache.find(network(Quant::Q8_0)), nullptr);
    EXPECT_FALSE(fs::exists(path));
    EXPECT_EQ(warnings_.size(), before + 1);
    keep(cache, network(Quant::Q8_0));
    EXPECT_NE(cache.find(network(Quant::Q8_0)), nullptr);
  }
}

TEST_F(QuantisedCacheIn, TheEntryUsedLongestAgoMakesRoom) {
  const int64_t one = network(Quant::Int8).bytes();
  QuantisedCache cache(options(2 * one + 1500), log());  // two, with their headers
  keep(cache, network(Quant::Int8, "a"));
  keep(cache, network(Quant::Int8, "b"));
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(cache.path_of(network(Quant::Int8, "a")), now - 2h);
  fs::last_write_time(cache.path_of(network(Quant::Int8, "b")), now - 1h);
  EXPECT_NE(cache.find(network(Quant::Int8, "a")), nullptr);  // which is now the one used last
  keep(cache, network(Quant::Int8, "c"));
  EXPECT_NE(cache.find(network(Quant::Int8, "a")), nullptr);
  EXPECT_EQ(cache.find(network(Quant::Int8, "b")), nullptr);
  EXPECT_NE(cache.find(network(Quant::Int8, "c")), nullptr);
}

TEST_F(QuantisedCacheIn, NothingIsWrittenBeyondTheLimits) {
  const auto written = [&](const QuantisedCacheOptions& o) {
    QuantisedCache cache(o, log());
    keep(cache, network(Quant::Int8));
    return !list_quantised(o.folder).empty();
  };
  QuantisedCacheOptions o = options(network(Quant::Int8).bytes() - 1);
  EXPECT_FALSE(written(o)) << "larger than the limit";
  o = options();
  o.smallest = network(Quant::Int8).bytes() + 1;
  EXPECT_FALSE(written(o)) << "not worth it";
  o = options();
  o.keep_free_share = 1;
  EXPECT_FALSE(written(o)) << "the disk is too full";
  EXPECT_TRUE(warnings_.empty());
  EXPECT_TRUE(written(options()));
}

TEST_F(QuantisedCacheIn, AFailureToWriteIsAWarningAndLeavesNothing) {
  QuantisedCacheOptions o = options();
  fs::create_directories(o.folder);
  QuantisedCache cache(o, log());
  fs::create_directories(cache.path_of(network(Quant::Int8)) / "in the way");
  keep(cache, network(Quant::Int8));
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[1].find("not cached"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(o.folder), {}), 1);
}

TEST_F(QuantisedCacheIn, TemporariesOfKilledProcessesAreDeleted) {
  QuantisedCache cache(options(), log());
  fs::create_directories(options().folder);
  const fs::path path = cache.path_of(network(Quant::Q4_0));
  const fs::path left = options().folder / ("." + path.filename().string() + ".abcdef.flux2-tmp");
  std::ofstream(left) << "half";
  keep(cache, network(Quant::Int8));
  EXPECT_FALSE(fs::exists(left));
}

}  // namespace
}  // namespace flux2
