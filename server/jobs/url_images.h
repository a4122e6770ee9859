#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "net/http.h"

namespace flux2 {

struct UrlImageRules {
  bool plain_http = false;                 // https alone otherwise
  std::chrono::milliseconds time{20'000};  // for all redirects together
  size_t bytes = size_t{50} << 20;
  int at_a_time = 2;  // a request waits for its images on a thread that others need
};

// Brings images that requests name by their address. Only public addresses are connected to, whatever a name resolves to and
// wherever it redirects. Thread-safe.
class UrlImages {
 public:
  explicit UrlImages(HttpSettings settings);

  // The bytes, of an answer that says it is an image. Throws InvalidArgument with a reason that tells nothing about this
  // machine's network, and HttpError 429 `busy`.
  std::vector<std::byte> fetch(const std::string& url, const UrlImageRules& rules);

 private:
  HttpSettings settings_;
  std::atomic<int> running_ = 0;
};

}  // namespace flux2
