#include "hub/adapter_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path scratch() {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("flux2_adapter_average_{}", ::getpid());
  fs::create_directories(folder);
  return folder;
}

// The value of a parameter at a time, for a run that saved at each of `times`.
double parameter(double time, size_t index) { return std::sin(0.01 * time * static_cast<double>(index + 1)) + 0.001 * time; }

fs::path save(const std::string& name, double time, DType dtype, const std::map<std::string, std::string>& metadata) {
  std::vector<float> values;
  for (size_t i = 0; i < 6; ++i) values.push_back(static_cast<float>(parameter(time, i)));
  std::vector<bf16> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), to_bf16);
  const void* data = dtype == DType::BF16 ? static_cast<const void*>(halves.data()) : values.data();
  const float alpha = 4;
  const fs::path path = scratch() / name;
  save_tensors(path,
               {{"img_in.lora_A.weight", Tensor::host_copy(data, dtype, {2, 3})},
                {"img_in.alpha", Tensor::host_copy(&alpha, DType::F32, {})}},
               metadata);
  return path;
}

TEST(AdapterAverage, ExponentsArePublishedOnes) {
  EXPECT_NEAR(ema_exponent(0.05), 16.97, 0.01);
  EXPECT_NEAR(ema_exponent(0.10), 6.94, 0.01);
  EXPECT_THROW(ema_exponent(0.5), Error);
  EXPECT_THROW(ema_exponent(0), Error);
}

// Compares the closed form with the integral that it replaces, and with the update that a trainer makes at every step.
TEST(AdapterAverage, WeightsAreThoseOfTheIntegral) {
  const std::vector<double> times = {200, 400, 500, 1000};
  const double gamma = ema_exponent(0.15);
  const std::vector<double> weights = ema_weights(times, gamma);
  std::vector<double> sums(times.size());
  double all = 0;
  constexpr int kSteps = 1'000'000;
  for (int i = 0; i < kSteps; ++i) {
    const double t = (i + 0.5) * times.back() / kSteps, w = std::pow(t, gamma);
    size_t s = 0;
    while (t > times[s]) ++s;
    sums[s] += w, all += w;
  }
  double total = 0;
  for (size_t s = 0; s < times.size(); ++s) {
    EXPECT_NEAR(weights[s], sums[s] / all, 1e-6);
    total += weights[s];
  }
  EXPECT_NEAR(total, 1, 1e-12);

  double trained = 0, expected = 0;
  std::vector<double> steps;
  for (int t = 1; t <= 50; ++t) steps.push_back(t);
  const std::vector<double> every = ema_weights(steps, gamma);
  for (int t = 1; t <= 50; ++t) {
    const double beta = std::pow(1 - 1.0 / t, gamma + 1);
    trained = beta * trained + (1 - beta) * parameter(t, 2);
    expected += every[static_cast<size_t>(t - 1)] * parameter(t, 2);
  }
  EXPECT_NEAR(trained, expected, 1e-12);
}

TEST(AdapterAverage, FilesAreAveragedByTheirSteps) {
  const auto steps = [](int n) { return std::map<std::string, std::string>{{"ss_steps", std::to_string(n)}}; };
  const std::vector<fs::path> files = {save("a.safetensors", 100, DType::F32, steps(100)),
                                       save("b.safetensors", 300, DType::F32, {{"training_info", "{\"step\": 300}"}}),
                                       save("c.safetensors", 400, DType::F32, steps(400))};
  const fs::path out = scratch() / "average.safetensors";
  const AverageReport report = average_adapters(files, 0.15, out);
  EXPECT_TRUE(report.times_known);
  EXPECT_THAT(report.times, ::testing::ElementsAre(100, 300, 400));
  const auto average = open_weights(out);
  const std::vector<float> values = average->open("img_in.lora_A.weight").to_floats();
  const double gamma = ema_exponent(0.15);
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = 0, before = 0;
    for (const double t : {100.0, 300.0, 400.0}) {
      const double until = std::pow(t, gamma + 1);
      sum += (until - before) * parameter(t, i);
      before = until;
    }
    EXPECT_NEAR(values[i], sum / before, 1e-6);
  }
  EXPECT_EQ(average->open("img_in.alpha").to_floats()[0], 4);
  EXPECT_EQ(average->metadata().at("ss_steps"), "400");

  const std::vector<fs::path> silent = {save("d.safetensors", 1, DType::BF16, {}), save("e.safetensors", 2, DType::BF16, {})};
  EXPECT_FALSE(average_adapters(silent, 0.15, out).times_known);
  EXPECT_EQ(open_weights(out)->find("img_in.lora_A.weight")->dtype, DType::BF16);
}

TEST(AdapterAverage, FilesOfOtherRunsAreRefused) {
  const fs::path a = save("a.safetensors", 100, DType::F32, {}), b = scratch() / "other.safetensors";
  const std::vector<float> values(6);
  save_tensors(b, {{"img_in.lora_A.weight", Tensor::host_copy(values.data(), DType::F32, {2, 3})}});
  const auto words = [&](const std::vector<fs::path>& files) -> std::string {
    try {
      average_adapters(files, 0.15, scratch() / "none.safetensors");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(words({a, b}), HasSubstr("img_in.alpha"));
  EXPECT_THAT(words({b, a}), HasSubstr("more tensors"));
  EXPECT_THAT(words({a}), HasSubstr("at least two"));
}

}  // namespace
}  // namespace flux2
