#include "hub/adapter_average.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace {

using Source = std::shared_ptr<const WeightSource>;

double width_of(double exponent) { return std::sqrt((exponent + 1) / ((exponent + 2) * (exponent + 2) * (exponent + 3))); }

// The number of steps after which a file was saved.
std::optional<double> steps_of(const WeightSource& source) {
  const auto& metadata = source.metadata();
  Json found;
  if (const auto at = metadata.find("ss_steps"); at != metadata.end()) found = try_parse_json(at->second).value_or(Json());
  if (const auto at = metadata.find("training_info"); at != metadata.end()) {
    const Json info = try_parse_json(at->second).value_or(Json());
    if (info.is_object() && info.contains("step")) found = info["step"];
  }
  return found.is_number() && found.get<double>() > 0 ? std::optional(found.get<double>()) : std::nullopt;
}

void fill_times(const std::vector<Source>& sources, AverageReport& report) {
  for (const Source& source : sources) {
    const auto steps = steps_of(*source);
    report.times_known = report.times_known && steps && (report.times.empty() || *steps > report.times.back());
    report.times.push_back(steps.value_or(0));
  }
  if (report.times_known) return;
  for (size_t i = 0; i < report.times.size(); ++i) report.times[i] = static_cast<double>(i + 1);
}

void require_alike(const WeightSource& first, const WeightSource& other) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::Incompatible, "{} and {} are not from the same run: {}", first.description(), other.description(), what);
  };
  for (const StoredTensor& t : first.tensors()) {
    const StoredTensor* same = other.find(t.name);
    if (!same) refuse(fmt::format("only one has {}", printable(t.name)));
    if (same->shape != t.shape) refuse(fmt::format("{} is {} and {}", printable(t.name), t.shape, same->shape));
  }
  if (first.tensors().size() != other.tensors().size()) refuse("one has more tensors");
}

template <class T, class Round>
std::vector<std::byte> bytes_of(std::span<const double> values, Round round) {
  std::vector<T> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), [&](double v) { return round(static_cast<float>(v)); });
  const auto bytes = std::as_bytes(std::span(rounded));
  return {bytes.begin(), bytes.end()};
}

// Σ weight · tensor, summed in f64 and rounded once.
std::vector<std::byte> average(const std::vector<Source>& sources, const std::string& name, std::span<const double> weights,
                               DType dtype) {
  std::vector<double> sum;
  for (size_t s = 0; s < sources.size(); ++s) {
    const std::vector<float> values = sources[s]->open(name).to_floats();
    sum.resize(values.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weights[s] * static_cast<double>(values[i]);
  }
  if (dtype == DType::BF16) return bytes_of<bf16>(sum, to_bf16);
  if (dtype == DType::F16) return bytes_of<f16>(sum, to_f16);
  return bytes_of<float>(sum, [](float v) { return v; });
}

}  // namespace

double ema_exponent(double sigma_rel) {
  check(sigma_rel >= 0.01 && sigma_rel <= 0.28, "the relative width {} is not between 0.01 and 0.28", sigma_rel);
  double low = 0, high = 1e4;  // the width falls from 0.289 to 0.0001
  for (int i = 0; i < 200; ++i) {
    const double middle = 0.5 * (low + high);
    (width_of(middle) > sigma_rel ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

std::vector<double> ema_weights(std::span<const double> times, double exponent) {
  std::vector<double> weights;
  double before = 0;
  for (const double time : times) {
    const double until = std::pow(time / times.back(), exponent + 1);
    weights.push_back(until - before);
    before = until;
  }
  return weights;
}

AverageReport average_adapters(const std::vector<std::filesystem::path>& files, double sigma_rel,
                               const std::filesystem::path& out) {
  const double exponent = ema_exponent(sigma_rel);
  check(files.size() >= 2, "an average needs at least two adapters of the same run");
  std::vector<Source> sources;
  for (const auto& file : files) {
    sources.push_back(open_weights(file));
    require_alike(*sources[0], *sources.back());
  }
  AverageReport report;
  fill_times(sources, report);
  report.weights = ema_weights(report.times, exponent);

  std::vector<SafetensorsWriter::Declared> declared;
  for (const StoredTensor& t : sources.back()->tensors()) {
    if (!is_float(dtype_of(t)))
      fail(ErrorCode::Incompatible, "{} is stored as {}, which cannot be averaged", printable(t.name), t.dtype_name);
    declared.push_back({t.name, dtype_of(t), t.shape});
  }
  auto metadata = sources.back()->metadata();
  metadata["ema_sigma_rel"] = fmt::format("{}", sigma_rel);
  SafetensorsWriter writer(out, std::move(declared), metadata);
  for (const auto& t : writer.tensors()) writer.write(t.name, average(sources, t.name, report.weights, t.dtype));
  writer.commit();
  return report;
}

}  // namespace flux2
