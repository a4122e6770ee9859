#include "cli/remote_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

constexpr double kAnswerSeconds = 60;
constexpr double kQuietSeconds = 60;  // an event stream sends a comment every 15 s
constexpr std::string_view kBoundary = "flux2-7d1f0c52b9a84e36a1c9";

constexpr auto kRetryEvery = std::chrono::seconds(1);

struct StreamDone {};

bool take_event(const std::string& block, const RemoteServer::TakeEvent& take) {
  std::string name, data;
  for (size_t begin = 0; begin < block.size();) {
    const size_t end = std::min(block.find('\n', begin), block.size());
    const std::string_view line = std::string_view(block).substr(begin, end - begin);
    if (line.starts_with("event: ")) name = line.substr(7);
    if (line.starts_with("data: ")) data += line.substr(6);
    begin = end + 1;
  }
  const auto json = try_parse_json(data);
  return name.empty() || !json || take(name, *json);
}

}  // namespace

RemoteServer::RemoteServer(const Invocation& run) : client_(http_settings(run.environment)) {
  url_ = run.settings.text("url", "http://127.0.0.1:8190");
  while (url_.ends_with('/')) url_.pop_back();
  check(url_.starts_with("http://") || url_.starts_with("https://"), "--url {}: an address begins with http:// or https://",
        printable(url_));
  key_ = run.settings.text("api-key");
  if (key_.starts_with('@')) key_ = std::string(trimmed(read_text_file(key_.substr(1), {.bytes = 1 << 16})));
}

Json RemoteServer::ask(const std::string& method, const std::string& path, const Json& body) const {
  HttpRequest request = to(method, path);
  if (!body.is_null()) {
    request.headers.push_back({"content-type", "application/json"});
    request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const HttpAnswer answer = client_.send(request);
  refuse_failure(answer);
  return answer.body.empty() ? Json(nullptr) : parse_json(answer.body);
}

std::string RemoteServer::fetch(const std::string& path) const {
  HttpRequest request = to("GET", path);
  request.max_body = size_t{1} << 30;
  HttpAnswer answer = client_.send(request);
  refuse_failure(answer);
  return std::move(answer.body);
}

void RemoteServer::download(const std::string& path, const std::filesystem::path& file) const {
  AtomicFile out(file);
  const HttpSink sink{.begin = {}, .data = [&](std::span<const std::byte> bytes) { out.write(bytes); }};
  refuse_failure(client_.send(to("GET", path), sink));
  out.commit();
}

std::string RemoteServer::upload(const std::filesystem::path& image, const std::string& bytes) const {
  check(bytes.find(kBoundary) == bytes.npos, "{} cannot be sent in a form", image.string());
  HttpRequest request = to("POST", "/api/v1/uploads");
  request.headers.push_back({"content-type", fmt::format("multipart/form-data; boundary={}", kBoundary)});
  request.body = fmt::format(
      "--{}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"image\"\r\n"
      "content-type: application/octet-stream\r\n\r\n",
      kBoundary);
  request.body += bytes;
  request.body += fmt::format("\r\n--{}--\r\n", kBoundary);
  const HttpAnswer answer = client_.send(request);
  in_context(image.string(), [&] { refuse_failure(answer); });
  return parse_json(answer.body).at("id").get<std::string>();
}

void RemoteServer::follow(const std::string& path, const TakeEvent& take) const {
  HttpRequest request = to("GET", path);
  request.idle_timeout_s = kQuietSeconds;
  std::string text;
  bool ended = false;
  const HttpSink sink{.begin = {}, .data = [&](std::span<const std::byte> bytes) {
                        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                        for (size_t end = text.find("\n\n"); end != text.npos && !ended; end = text.find("\n\n")) {
                          const std::string block = text.substr(0, end);
                          text.erase(0, end + 2);
                          ended = !take_event(block, take);
                        }
                        if (ended) throw StreamDone();
                      }};
  try {
    refuse_failure(client_.send(request, sink));
  } catch (const StreamDone&) {}
}

HttpRequest RemoteServer::to(const std::string& method, const std::string& path) const {
  HttpRequest request;
  request.method = method;
  request.url = url_ + path;
  request.token = key_;
  request.idle_timeout_s = kAnswerSeconds;
  request.cancelled = [] { return interrupt_signal() != 0; };
  return request;
}

void RemoteServer::refuse_failure(const HttpAnswer& answer) const {
  if (answer.failed())
    throw Error(ErrorCode::Network, fmt::format("no answer from {}: {}", url_, answer.failure),
                Hint("start the server with {0}, or name another one with {1}", {run_command("serve"), set_option("url")}));
  if (answer.ok()) return;
  const auto body = try_parse_json(answer.body);
  std::string message = fmt::format("status {}", answer.status), hint;
  if (body && body->is_object() && body->contains("error") && (*body)["error"].is_object()) {
    message = (*body)["error"].value("message", message);
    hint = (*body)["error"].value("hint", "");
  }
  const ErrorCode code =
      answer.status == 400 || answer.status == 404 || answer.status == 409 ? ErrorCode::InvalidArgument : ErrorCode::Network;
  if (answer.status == 401) hint = "set --api-key";
  throw Error(code, "the server refused: " + message, Hint(hint));
}

bool is_final_job(const Json& job) {
  return job["state"] == "completed" || job["state"] == "failed" || job["state"] == "cancelled";
}

bool ServerPatience::lasts(const Error& e) {
  if (failures_++ == 0) failed_ = Clock::now();
  return e.code() == ErrorCode::Network && Clock::now() - failed_ <= at_most_;
}

void ServerPatience::wait() const {
  const auto end = Clock::now() + kRetryEvery;
  while (Clock::now() < end) {
    if (interrupt_signal() != 0) fail(ErrorCode::Cancelled, "stopped by signal {}", interrupt_signal());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace flux2
