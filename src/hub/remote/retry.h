#pragma once

#include <functional>
#include <string>

#include "base/log.h"
#include "net/http.h"

namespace flux2 {

struct RetryRules {
  int tries = 8;       // in a row without a new byte
  double first_s = 1;  // then 2, 4, 8, …
  double longest_s = 60;
  double patience_s = 600;  // the longest Retry-After that we wait for
};

// Broken connections, and the status codes that are worth retrying: 408, 429, 500, 502, 503, 504.
bool is_worth_retrying(const HttpAnswer& answer);

// A short description of an answer: "503", "no data for 10 s".
std::string in_words(const HttpAnswer& answer);

// Counts the attempts of one transfer and waits between them.
class Retry {
 public:
  Retry(RetryRules rules, std::function<bool()> cancelled, Log log)
      : rules_(rules), cancelled_(std::move(cancelled)), log_(std::move(log)) {}

  void progress() { failed_ = 0; }

  // Returns when the next attempt is due: after a growing pause, or as long as Retry-After says. Throws Network, with the last
  // failure, after too many attempts, and Cancelled.
  void wait(const HttpAnswer& answer, const std::string& what);

 private:
  RetryRules rules_;
  std::function<bool()> cancelled_;
  Log log_;
  int failed_ = 0;
};

}  // namespace flux2
