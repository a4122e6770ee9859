#include "hub/remote/retry.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

// Seconds, or a date.
std::optional<double> retry_after(const HttpAnswer& answer) {
  const auto text = answer.header("Retry-After");
  if (!text || text->empty()) return std::nullopt;
  if (text->find_first_not_of("0123456789") == text->npos) return text->size() > 9 ? 1e9 : std::stod(*text);
  std::tm date{};
  if (!::strptime(text->c_str(), "%a, %d %b %Y %H:%M:%S", &date)) return std::nullopt;
  return std::max(0.0, std::difftime(::timegm(&date), std::time(nullptr)));
}

}  // namespace

bool is_worth_retrying(const HttpAnswer& answer) {
  if (answer.failed()) return answer.transient;
  switch (answer.status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504: return true;
    default: return false;
  }
}

std::string in_words(const HttpAnswer& answer) {
  return answer.failed() ? printable(answer.failure) : fmt::format("the server answers {}", answer.status);
}

void Retry::wait(const HttpAnswer& answer, const std::string& what) {
  ++failed_;
  const bool limited = answer.status == 429;
  const char* hint = limited ? "wait a while; with a token (HF_TOKEN) the hub allows more"
                             : "check the connection (HTTPS_PROXY, HF_ENDPOINT); what has arrived is kept and the same "
                               "command goes on from there";
  if (failed_ >= rules_.tries)
    throw Error(ErrorCode::Network, fmt::format("{}: {}, {} times in a row", what, in_words(answer), failed_), hint);
  const double pause = std::min(rules_.longest_s, rules_.first_s * std::ldexp(1.0, failed_ - 1));
  const double told = retry_after(answer).value_or(0);
  if (told > rules_.patience_s)
    throw Error(ErrorCode::Network, fmt::format("{}: {}, and the server asks to wait {:.0f} s", what, in_words(answer), told),
                hint);
  const double seconds = std::max(pause, told);
  log_.warn("{}: {}; trying again in {:g} s", what, in_words(answer), seconds);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (auto now = until; (now = std::chrono::steady_clock::now()) < until;) {
    if (cancelled_ && cancelled_()) fail(ErrorCode::Cancelled, "the transfer was cancelled");
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(until - now, std::chrono::milliseconds(50)));
  }
}

}  // namespace flux2
