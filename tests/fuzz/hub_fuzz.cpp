#include <string>
#include <vector>

#include "base/error.h"
#include "hub/remote/choose_files.h"
#include "hub/remote/hub_client.h"
#include "net/http.h"
#include "net/url.h"
#include "tests/fuzz/target.h"

namespace {

// The answers that "the network" gives next: STATUS, header lines, an empty line, the body; answers are separated by a zero byte.
std::string_view waiting_answers;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

std::string_view take_until(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + end.size());
  return part;
}

flux2::HttpAnswer next_answer(const std::string& url) {
  flux2::HttpAnswer answer{.url = url};
  std::string_view text = take_until(waiting_answers, std::string_view("\0", 1));
  if (text.empty()) {
    answer.failure = "no answer";
    return answer;
  }
  answer.status = static_cast<int>(flux2::decimal(take_until(text, "\n")).value_or(200) % 1000);
  while (!text.empty()) {
    std::string_view line = take_until(text, "\n");
    if (line.empty()) break;
    const std::string name(take_until(line, ": "));
    answer.headers.push_back({name, std::string(line)});
  }
  answer.body = std::string(text);
  return answer;
}

}  // namespace

namespace flux2 {

// Takes the place of the real client, which is then not linked.
struct HttpClient::State {};
HttpClient::HttpClient(HttpSettings) {}
HttpClient::~HttpClient() = default;
bool HttpClient::available() { return true; }
HttpAnswer HttpClient::send(const HttpRequest& request, const HttpSink&) const { return next_answer(request.url); }

}  // namespace flux2

// Whatever a server answers, files with safe paths or an Error come of it.
FUZZ_TARGET(hub) {
  using namespace flux2;
  const HttpClient http;
  HubSettings settings;
  settings.endpoint = "https://hub.example";
  settings.token = "secret";
  const HubClient hub(http, settings, {.retry = {.tries = 1, .first_s = 0, .longest_s = 0, .patience_s = 0}});
  const auto attempt = [&](auto&& call) {
    waiting_answers = flux2_fuzz::text_of(data, size);
    try {
      call();
    } catch (const Error& e) {
      // A server knows the token and may put it anywhere; libFuzzer learns the word from this comparison.
      if ((e.what() + e.hint().plain()).find("secret") != std::string::npos) flux2_fuzz::broken();
    }
  };
  attempt([&] { hub.info("a/b", "main"); });
  attempt([&] {
    for (const RemoteFile& file : hub.list("a/b", "main"))
      // "..1" is an ordinary name.
      if (file.path.empty() || file.path.front() == '/' || ("/" + file.path + "/").find("/../") != std::string::npos ||
          file.path.find("secret") != std::string::npos)
        flux2_fuzz::broken();
  });
  attempt([&] { choose_files(hub.list("a/b", "main"), Source{.repository = "a/b"}); });
  attempt([&] { hub.metadata("a/b", "main", "c.json"); });
  attempt([&] { content_range(next_answer("https://hub.example")); });
  attempt([&] { whole_size(next_answer("https://hub.example")); });
  attempt([&] { send_following(http, {.url = "https://hub.example", .token = "secret"}); });
}
