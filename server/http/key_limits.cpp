#include "server/http/key_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "server/http/errors.h"

namespace flux2 {

KeyLimits KeyLimits::or_else(const KeyLimits& defaults) const {
  return {rate > 0 ? rate : defaults.rate, queue > 0 ? queue : defaults.queue, work > 0 ? work : defaults.work};
}

void RateMeter::count(const Caller& caller, int64_t now_ms) {
  if (caller.limits.rate <= 0) return;
  const auto rate = static_cast<double>(caller.limits.rate);
  const double per_ms = rate / 60'000;
  double wait_ms = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = buckets_.try_emplace(caller.key, Bucket{rate, now_ms});
    Bucket& bucket = at->second;
    bucket.left = std::min(rate, bucket.left + per_ms * static_cast<double>(std::max<int64_t>(now_ms - bucket.at, 0)));
    bucket.at = now_ms;
    if (bucket.left >= 1) {
      bucket.left -= 1;
      return;
    }
    wait_ms = (1 - bucket.left) / per_ms;
  }
  HttpError error(
      429, "rate_limit_exceeded",
      fmt::format("This key may send {} {} a minute.", caller.limits.rate, caller.limits.rate == 1 ? "request" : "requests"));
  error.hint = "wait for the number of seconds in Retry-After";
  error.headers = {{"retry-after", std::to_string(static_cast<int64_t>(std::ceil(wait_ms / 1000)))}};
  throw error;
}

}  // namespace flux2
