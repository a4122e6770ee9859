#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/store/run_store.h"

namespace flux2 {

// The names of the numbers of a step: loss, loss_avg, lr, grad_norm, it_per_s, device_gib.
const std::vector<std::string>& metric_names();
double metric_named(const RunMetric& metric, const std::string& name);  // throws InvalidArgument for an unknown name

// The metrics of the steps `from` to `to`, sorted by step, in at most `max` buckets of equal width in steps: for each key its
// mean, and as key_min and key_max the range. "step" is the last step in the bucket. Buckets without a step are left out; unknown
// numbers are null.
struct BucketRange {
  int64_t from = 0, to = 0, max = 2000;
};
Json metric_buckets(std::span<const RunMetric> metrics, const BucketRange& range, const std::vector<std::string>& keys);

}  // namespace flux2
