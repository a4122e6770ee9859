#include "server/jobs/url_images.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/error.h"
#include "net/public_address.h"
#include "net/url.h"
#include "server/http/errors.h"

namespace flux2 {

namespace {

bool says_image(const HttpAnswer& head) {
  std::string type = head.header("Content-Type").value_or("");
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type.starts_with("image/") && !type.starts_with("image/svg");
}

}  // namespace

UrlImages::UrlImages(HttpSettings settings) : settings_(std::move(settings)) {
  if (!settings_.allows_address) settings_.allows_address = [](const sockaddr* address) { return is_public_address(address); };
}

std::vector<std::byte> UrlImages::fetch(const std::string& address, const UrlImageRules& rules) {
  struct Turn {
    std::atomic<int>& running;
    int before = running.fetch_add(1);
    ~Turn() { --running; }
  } const turn{running_};
  if (turn.before >= rules.at_a_time) {
    HttpError busy(429, "busy", "other requests fetch images at the moment");
    busy.headers = {{"retry-after", "2"}};
    throw busy;
  }
  check(address.size() <= 8192, "the address is too long");
  const Url url = parse_url(address);
  check(url.secure() || rules.plain_http, "only https addresses are fetched");
  const auto end = std::chrono::steady_clock::now() + rules.time;
  std::vector<std::byte> bytes;
  bool too_long = false, not_an_image = false;
  HttpSink sink;
  sink.begin = [&](const HttpAnswer& head) {
    not_an_image = !says_image(head);
    too_long = whole_size(head).value_or(0) > rules.bytes;
    return !not_an_image && !too_long;
  };
  sink.data = [&](std::span<const std::byte> more) {
    too_long = bytes.size() + more.size() > rules.bytes;
    if (too_long) fail(ErrorCode::Cancelled, "too long");
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  // What went wrong inside is not told: it would say which names and ports there are.
  const auto wrong = [&](const char* why) { return Error(ErrorCode::InvalidArgument, why); };
  try {
    const HttpClient client(settings_);
    const HttpAnswer answer = send_following(client,
                                             {.url = url.text(),
                                              .headers = {{"Accept", "image/*"}},
                                              .idle_timeout_s = 10,
                                              .max_body = 1 << 16,
                                              .cancelled = [&] { return std::chrono::steady_clock::now() > end; }},
                                             sink);
    if (!not_an_image && !too_long && !answer.ok()) throw wrong("the image could not be fetched from its address");
  } catch (const Error& e) {
    if (!too_long && e.code() == ErrorCode::Cancelled) throw wrong("fetching the image from its address took too long");
    if (!too_long && !not_an_image) throw wrong("the image could not be fetched from its address");
  }
  if (not_an_image) throw wrong("the address does not lead to an image");
  if (too_long) throw wrong("the image at the address is too large");
  return bytes;
}

}  // namespace flux2
