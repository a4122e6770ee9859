#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace flux2 {

// What a key allows. Each level includes those before it.
enum class Scope { None, Generate, Manage, Admin };

// What one key may use; 0: no limit.
struct KeyLimits {
  int64_t rate = 0;   // requests per minute
  int64_t queue = 0;  // jobs that wait or run
  int64_t work = 0;   // megapixels times steps, per hour

  bool any_of_jobs() const { return queue > 0 || work > 0; }
  KeyLimits or_else(const KeyLimits& defaults) const;
};

// Who sends a request.
struct Caller {
  std::string key;   // its hash; empty: no key was needed
  std::string name;  // of the key, for logs
  KeyLimits limits;
  Scope scope = Scope::Admin;  // that of the key; without keys everybody may do everything
};

// How many requests were refused because of a limit.
struct LimitCounts {
  std::atomic<int64_t> rate = 0, queue = 0, work = 0;
};

// Counts requests of each key. A key that was quiet may send as many as its rate at once; then it gets them back one by one.
// Thread-safe.
class RateMeter {
 public:
  // Throws HttpError 429 `rate_limit_exceeded` with Retry-After.
  void count(const Caller& caller, int64_t now_ms);

 private:
  struct Bucket {
    double left = 0;
    int64_t at = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace flux2
