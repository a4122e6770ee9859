#include "server/store/ids.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <span>
#include <vector>

#include "base/base64.h"
#include "base/error.h"

namespace flux2 {

namespace {

constexpr std::string_view kCrockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
constexpr size_t kIdLength = 26;

void fill_randomly(std::span<unsigned char> bytes) {
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    fail(ErrorCode::Internal, "the system has no random numbers for an id");
}

// 48 bits of milliseconds and 80 random bits.
struct IdParts {
  int64_t ms = 0;
  uint64_t low = 0;  // of the random bits
  uint16_t high = 0;

  static IdParts drawn(int64_t ms) {
    std::array<unsigned char, 10> bytes;
    fill_randomly(bytes);
    IdParts parts{ms};
    for (size_t i = 0; i < 8; ++i) parts.low = parts.low << 8 | bytes[i];
    parts.high = static_cast<uint16_t>(bytes[8] << 8 | bytes[9]);
    return parts;
  }

  // A larger id of the same millisecond. The distance is random, so that a process and its fork do not go on alike.
  void advance() {
    std::array<unsigned char, 4> bytes;
    fill_randomly(bytes);
    uint64_t distance = 0;
    for (const unsigned char byte : bytes) distance = distance << 8 | byte;
    const uint64_t before = low;
    low += distance + 1;
    if (low < before && ++high == 0) *this = drawn(ms + 1);
  }

  std::string text() const {
    std::string id(kIdLength, '0');
    const auto digit = [](uint64_t five) { return kCrockford[five & 31]; };
    for (size_t i = 0; i < 10; ++i) id[i] = digit(static_cast<uint64_t>(ms) >> (5 * (9 - i)));
    // The random bits as 16 digits, most significant first: digit k holds the bits from 5·k upwards.
    for (size_t k = 0; k < 16; ++k) {
      const size_t from = 5 * k;
      uint64_t five = from < 64 ? low >> from : uint64_t{high} >> (from - 64);
      if (from < 64 && from + 5 > 64) five |= uint64_t{high} << (64 - from);
      id[kIdLength - 1 - k] = digit(five);
    }
    return id;
  }
};

}  // namespace

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string new_id() {
  // Ids must increase within the process, whoever asks for them.
  static std::mutex mutex;
  static IdParts last;
  const std::lock_guard lock(mutex);
  const int64_t now = now_ms();
  if (now > last.ms) last = IdParts::drawn(now);
  else last.advance();  // also when the clock was set back
  return last.text();
}

bool is_id(std::string_view text) {
  return text.size() == kIdLength && text[0] <= '7' &&
         std::all_of(text.begin(), text.end(), [](char c) { return kCrockford.find(c) != kCrockford.npos; });
}

std::string id_without_prefix(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return {};
  const std::string_view rest = text.substr(prefix.size());
  return is_id(rest) ? std::string(rest) : std::string();
}

std::string rfc3339(int64_t ms) {
  if (ms == 0) return {};
  using namespace std::chrono;  // NOLINT: only here, for calendar types
  const sys_time<milliseconds> time{milliseconds(ms)};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss<milliseconds> clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count(), clock.subseconds().count());
}

std::string random_token(size_t bytes) {
  std::vector<unsigned char> drawn(bytes);
  fill_randomly(drawn);
  std::string text = base64_encode(std::as_bytes(std::span(drawn)));
  text.erase(text.find_last_not_of('=') + 1);
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

}  // namespace flux2
