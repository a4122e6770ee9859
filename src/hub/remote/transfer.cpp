#include "hub/remote/transfer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "base/start_thread.h"
#include "base/text.h"
#include "net/http.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWriteAtOnce = 128 << 10;
constexpr uint64_t kCheckSpaceEvery = 32 << 20;
constexpr auto kDurableEvery = std::chrono::seconds(5);

// Thrown from one part to end them all: the file has to be asked for from its beginning.
struct StartAgain {
  bool whole;  // the server knows no ranges, or the file has changed
};

class Transfer {
 public:
  Transfer(const HttpClient& http, AddressBook& addresses, PartialFile& file, const TransferSettings& settings)
      : http_(http), addresses_(addresses), file_(file), s_(settings), version_(settings.version), durable_at_(Clock::now()) {}

  uint64_t run() {
    for (int restarts = 0;; ++restarts) {
      try {
        all_parts();
        return file_.have();
      } catch (const StartAgain& again) {
        if (restarts == 2) fail(ErrorCode::Network, "{}: the server reports different sizes for the file", s_.name);
        start_again(again.whole);
      }
    }
  }

 private:
  void all_parts() {
    next_ = 0;
    stop_ = false;
    first_error_ = nullptr;
    size_t open = 0;
    for (size_t i = 0; i < file_.segments(); ++i) open += !file_.missing(i).empty();
    const auto parts = std::min<size_t>(open, static_cast<size_t>(std::max(1, s_.parts)));
    {
      std::vector<std::jthread> threads;
      for (size_t i = 1; i < parts; ++i) threads.push_back(start_thread_if_possible([this] { some_parts(); }));
      some_parts();
    }
    if (first_error_) std::rethrow_exception(first_error_);
  }

  void some_parts() {
    try {
      for (size_t i; (i = next_++) < file_.segments();) part(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_error_) first_error_ = std::current_exception();  // the others only hear that they are to stop
      stop_ = true;
    }
  }

  void part(size_t segment) {
    Retry retry(
        s_.retry, [this] { return cancelled(); }, s_.log);
    bool renewed = false;
    while (!file_.missing(segment).empty()) {
      const RemoteAddress address = addresses_.current();
      uint64_t taken = 0;
      HttpAnswer answer = ask(segment, address, taken);
      if (taken > 0) {
        retry.progress();
        renewed = false;
      }
      if (answer.ok() && (file_.size() == PartialFile::kUnknown || file_.missing(segment).empty())) break;
      if (answer.status == 416 && !answer.failed()) {
        if (file_.size() == PartialFile::kUnknown && content_range(answer).total == file_.have()) break;
        throw StartAgain{false};
      }
      if (address.signed_for_us && !renewed && !answer.failed() && (answer.status == 401 || answer.status == 403)) {
        addresses_.renew(address.url);
        renewed = true;
        continue;
      }
      if (answer.ok()) {
        answer.failure = "the answer ended early";
        answer.transient = true;
      }
      if (!is_worth_retrying(answer)) refuse(answer);
      retry.wait(answer, s_.name);
    }
  }

  HttpAnswer ask(size_t segment, const RemoteAddress& address, uint64_t& taken) {
    const ByteRange range = file_.missing(segment);
    const bool known = file_.size() != PartialFile::kUnknown;
    const bool ranged = range.begin > 0 || (known && file_.segments() > 1);
    HttpRequest request{.url = address.url,
                        .headers = {{"Accept-Encoding", "identity"}},
                        .token = address.token,
                        .idle_timeout_s = s_.idle_timeout_s,
                        .cancelled = [this] { return cancelled(); }};
    if (const std::string version = known_version(); ranged && !version.empty()) request.headers.push_back({"If-Range", version});
    if (ranged)
      request.headers.push_back(
          {"Range", known ? fmt::format("bytes={}-{}", range.begin, range.end - 1) : fmt::format("bytes={}-", range.begin)});
    // Written 128 KiB at a time: 16 KiB, as they come, cost a sixth more processor time, 1 MiB falls out of the cache.
    std::vector<std::byte> buffer;
    buffer.reserve(kWriteAtOnce);
    const auto write = [&] {
      taken += take(segment, buffer);
      buffer.clear();
    };
    HttpAnswer answer = send_following(http_, std::move(request),
                                       {.begin = [&, ranged](const HttpAnswer& head) { return begin(head, range, ranged); },
                                        .data =
                                            [&](std::span<const std::byte> bytes) {
                                              if (buffer.size() + bytes.size() > kWriteAtOnce) write();
                                              buffer.insert(buffer.end(), bytes.begin(), bytes.end());
                                            }});
    write();
    return answer;
  }

  bool begin(const HttpAnswer& head, const ByteRange& range, bool ranged) {
    const std::optional<uint64_t> total = whole_size(head);
    if (head.status == 206) {
      const ContentRange told = content_range(head);
      if (told.begin && *told.begin != range.begin)
        fail(ErrorCode::Network, "{}: requested bytes from {}, but the server sent bytes from {}", s_.name, range.begin,
             *told.begin);
    } else {
      if (ranged && file_.segments() > 1) throw StartAgain{true};
      if (ranged) start_again(true);                           // this part is the only one: its bytes come from the beginning now
      if (!s_.version.empty()) set_version(version_of(head));  // these bytes are what a later request has to continue
    }
    const uint64_t size = file_.size();
    if (size == PartialFile::kUnknown && total) check_growth(*total, *total - std::min(*total, file_.have()));
    if (size != PartialFile::kUnknown && total && *total != size)
      throw Error(ErrorCode::BadFile, fmt::format("{}: {} bytes were announced, but the server has {}", s_.name, size, *total),
                  "the file may have been replaced; run the command again");
    return true;
  }

  uint64_t take(size_t segment, std::span<const std::byte> bytes) {
    const auto wanted = bytes.first(std::min<uint64_t>(bytes.size(), file_.missing(segment).size()));
    if (file_.size() == PartialFile::kUnknown) check_growth(file_.have() + wanted.size(), wanted.size());
    file_.append(segment, wanted);
    if (s_.received && !wanted.empty()) s_.received(static_cast<int64_t>(wanted.size()));
    make_durable_now_and_then();
    if (wanted.size() < bytes.size()) fail(ErrorCode::Network, "{}: the server sent more bytes than requested", s_.name);
    return wanted.size();
  }

  // For a file of unknown size: `whole` bytes so far, of which `more` are not on the disk yet.
  void check_growth(uint64_t whole, uint64_t more) {
    if (whole > s_.largest) {
      file_.discard();
      throw Error(ErrorCode::CannotWrite,
                  fmt::format("{} has more than {}, which is the limit; what was received has been deleted", s_.name,
                              byte_text(s_.largest)),
                  raise_limit("download-bytes", 2 * s_.largest));
    }
    if (!s_.free_space) return;
    if (whole > space_checked_at_ + kCheckSpaceEvery || space_checked_at_ == 0 || more > kCheckSpaceEvery) {
      space_checked_at_ = whole;
      const uint64_t free = s_.free_space();
      if (free < more || free - more < s_.keep_free)
        throw Error(ErrorCode::CannotWrite,
                    fmt::format("{}: the server does not tell its size, and the disk has only {} left after {}", s_.name,
                                byte_text(free), byte_text(file_.have())),
                    "free some space; the same command then continues the download");
    }
  }

  void start_again(bool whole) {
    if (s_.received) s_.received(-static_cast<int64_t>(file_.have()));
    file_.start_again(whole);
  }

  std::string known_version() {
    const std::lock_guard lock(mutex_);
    return version_;
  }

  void set_version(std::string version) {
    const std::lock_guard lock(mutex_);
    version_ = std::move(version);
  }

  bool cancelled() const { return stop_ || (s_.cancelled && s_.cancelled()); }

  [[noreturn]] void refuse(const HttpAnswer& answer) const {
    if (s_.refuse) s_.refuse(answer);
    fail(ErrorCode::Network, "{}: {}", s_.name, in_words(answer));
  }

  // Not more often than the disk can bear; the last bytes become durable when the file gets its name.
  void make_durable_now_and_then() {
    {
      const std::lock_guard lock(mutex_);
      if (Clock::now() - durable_at_ < kDurableEvery) return;
      durable_at_ = Clock::now();
    }
    file_.make_durable();
  }

  const HttpClient& http_;
  AddressBook& addresses_;
  PartialFile& file_;
  const TransferSettings& s_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // of the three below
  std::exception_ptr first_error_;
  std::string version_;
  Clock::time_point durable_at_;
  uint64_t space_checked_at_ = 0;  // a file of unknown size has one part, so one thread uses this
};

}  // namespace

uint64_t segment_size(uint64_t file_size) {
  constexpr uint64_t kMiB = 1 << 20;
  if (file_size <= 8 * kMiB) return std::max<uint64_t>(1, file_size);
  return std::clamp<uint64_t>(file_size / 16 / kMiB * kMiB, 4 * kMiB, 64 * kMiB);
}

uint64_t transfer(const HttpClient& http, AddressBook& addresses, PartialFile& file, const TransferSettings& settings) {
  return Transfer(http, addresses, file, settings).run();
}

}  // namespace flux2
