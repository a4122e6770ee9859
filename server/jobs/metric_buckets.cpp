#include "server/jobs/metric_buckets.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

using MetricMember = double RunMetric::*;
constexpr std::pair<const char*, MetricMember> kMetrics[] = {
    {"loss", &RunMetric::loss},           {"loss_avg", &RunMetric::loss_avg}, {"lr", &RunMetric::lr},
    {"grad_norm", &RunMetric::grad_norm}, {"it_per_s", &RunMetric::it_per_s}, {"device_gib", &RunMetric::device_gib}};

struct MetricSpread {
  double sum = 0, low = 0, high = 0;
  int64_t count = 0;

  void add(double value) {
    if (!std::isfinite(value)) return;
    low = count == 0 ? value : std::min(low, value);
    high = count == 0 ? value : std::max(high, value);
    sum += value;
    ++count;
  }
  Json mean() const { return count == 0 ? Json(nullptr) : Json(sum / static_cast<double>(count)); }
  Json bound(double value) const { return count == 0 ? Json(nullptr) : Json(value); }
};

}  // namespace

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, member] : kMetrics) list.emplace_back(name);
    return list;
  }();
  return names;
}

double metric_named(const RunMetric& metric, const std::string& name) {
  for (const auto& [known, member] : kMetrics)
    if (name == known) return metric.*member;
  fail(ErrorCode::InvalidArgument, "unknown metric \"{}\"", printable(name));
}

Json metric_buckets(std::span<const RunMetric> metrics, const BucketRange& range, const std::vector<std::string>& keys) {
  check(range.max > 0 && range.from <= range.to, "cannot divide the steps {} to {} into {} buckets", range.from, range.to,
        range.max);
  Json answer = {{"step", Json::array()}};
  for (const std::string& key : keys)
    for (const char* suffix : {"", "_min", "_max"}) answer[key + suffix] = Json::array();
  const int64_t count = range.to - range.from + 1, width = (count + range.max - 1) / range.max;
  for (size_t begin = 0; begin < metrics.size();) {
    const int64_t bucket = (metrics[begin].step - range.from) / width;
    size_t end = begin;
    while (end < metrics.size() && (metrics[end].step - range.from) / width == bucket) ++end;
    answer["step"].push_back(metrics[end - 1].step);
    for (const std::string& key : keys) {
      MetricSpread spread;
      for (size_t i = begin; i < end; ++i) spread.add(metric_named(metrics[i], key));
      answer[key].push_back(spread.mean());
      answer[key + "_min"].push_back(spread.bound(spread.low));
      answer[key + "_max"].push_back(spread.bound(spread.high));
    }
    begin = end;
  }
  return answer;
}

}  // namespace flux2
