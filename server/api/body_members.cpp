#include "server/api/body_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/text.h"

namespace flux2 {

namespace {

HttpError wrong_argument(std::string_view name, const std::string& message) {
  return {400, "invalid_request", fmt::format("{} {}", name, message), std::string(name)};
}

// A number of exactly so many digits; -1 if it is none.
int digits_at(std::string_view text, size_t at, size_t count) {
  if (at + count > text.size()) return -1;
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

// "2026-11-16" or "2026-11-16T12:00:00.000Z"; the fraction may be absent, the zone must be UTC.
std::optional<int64_t> milliseconds_of(std::string_view text) {
  const int year = digits_at(text, 0, 4), month = digits_at(text, 5, 2), day = digits_at(text, 8, 2);
  if (year < 1970 || month < 1 || month > 12 || day < 1 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  if (text.size() == 10) return days * 86'400'000;
  const int hour = digits_at(text, 11, 2), minute = digits_at(text, 14, 2), second = digits_at(text, 17, 2);
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return std::nullopt;
  if (text[10] != 'T' || text[13] != ':' || text[16] != ':' || text.back() != 'Z') return std::nullopt;
  int64_t fraction = 0;
  if (text.size() > 20) {
    const int thousandths = digits_at(text, 20, 3);
    if (text[19] != '.' || thousandths < 0 || text.size() != 24) return std::nullopt;
    fraction = thousandths;
  }
  return days * 86'400'000 + hour * 3'600'000 + minute * 60'000 + second * 1000 + fraction;
}

}  // namespace

BodyMembers::BodyMembers(const Json& body, std::initializer_list<const char*> known) : body_(body) {
  std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [name, value] : body.items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = nearest_word(name, names);
    wrong(printable(name), near.empty() ? "unknown member" : "unknown member; did you mean " + near + "?");
  }
}

const Json* BodyMembers::find(const char* name) const {
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> BodyMembers::text(const char* name, size_t most_bytes) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) return wrong(name, "must be a string"), std::nullopt;
  auto text = value->get<std::string>();
  if (text.size() > most_bytes || text.find('\0') != text.npos)
    return wrong(name, fmt::format("must have at most {} bytes and no NUL", most_bytes)), std::nullopt;
  return text;
}

std::optional<bool> BodyMembers::flag(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) return wrong(name, "must be true or false"), std::nullopt;
  return value->get<bool>();
}

std::optional<int64_t> BodyMembers::integer(const char* name, int64_t low, int64_t high) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  const bool fits = value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
  if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high)
    return wrong(name, fmt::format("must be a whole number from {} to {}", low, high)), std::nullopt;
  return value->get<int64_t>();
}

std::optional<std::vector<std::string>> BodyMembers::texts(const char* name, size_t most, size_t most_bytes) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_array() || value->size() > most)
    return wrong(name, fmt::format("must be a list of at most {} strings", most)), std::nullopt;
  std::vector<std::string> texts;
  for (const Json& item : *value) {
    if (!item.is_string() || item.get_ref<const std::string&>().size() > most_bytes ||
        item.get_ref<const std::string&>().find('\0') != std::string::npos)
      return wrong(name, fmt::format("must be a list of strings of at most {} bytes", most_bytes)), std::nullopt;
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

void BodyMembers::check_all() const {
  if (problems_.empty()) return;
  std::string message;
  for (const auto& problem : problems_) message += (message.empty() ? "" : "; ") + problem.path + ": " + problem.message;
  HttpError error(400, "invalid_request", message, problems_.front().path);
  error.fields = problems_;
  throw error;
}

std::optional<int64_t> integer_argument(const ServerRequest& request, std::string_view name, int64_t low, int64_t high) {
  const auto text = request.argument(name);
  if (!text || text->empty()) return std::nullopt;
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc() || end != text->data() + text->size() || value < low || value > high)
    throw wrong_argument(name, fmt::format("must be a whole number from {} to {}", low, high));
  return value;
}

std::optional<bool> flag_argument(const ServerRequest& request, std::string_view name) {
  const auto text = request.argument(name);
  if (!text || text->empty()) return std::nullopt;
  if (*text == "1" || *text == "true") return true;
  if (*text == "0" || *text == "false") return false;
  throw wrong_argument(name, "must be 1 or 0");
}

std::optional<int64_t> time_argument(const ServerRequest& request, std::string_view name) {
  const auto text = request.argument(name);
  if (!text || text->empty()) return std::nullopt;
  if (const auto time = milliseconds_of(*text)) return time;
  throw wrong_argument(name, "must be a date, 2026-11-16, or a time in UTC, 2026-11-16T12:00:00Z");
}

}  // namespace flux2
