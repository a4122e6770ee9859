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
  double patience_s = 600;  // of a server that says itself when to come again
};

// Connections that break and answers that ask to come later: 408, 429, 500, 502, 503, 504.
bool is_worth_retrying(const HttpAnswer& answer);

// What an answer says about itself in a few words: "503", "no byte came for 10 s".
std::string in_words(const HttpAnswer& answer);

// Counts the tries of one transfer and waits between them.
class Retry {
 public:
  Retry(RetryRules rules, std::function<bool()> cancelled, Log log)
      : rules_(rules), cancelled_(std::move(cancelled)), log_(std::move(log)) {}

  void progress() { failed_ = 0; }

  // Returns when the next try is due: after a growing pause, or as long as Retry-After says. Throws Network when there
  // were enough, with what went wrong the last time, and Cancelled.
  void wait(const HttpAnswer& answer, const std::string& what);

 private:
  RetryRules rules_;
  std::function<bool()> cancelled_;
  Log log_;
  int failed_ = 0;
};

}  // namespace flux2
