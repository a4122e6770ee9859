#include "server/log_lines.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>

namespace flux2 {

namespace {

std::string time_text() {
  using namespace std::chrono;
  const int64_t ms = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

Json beginning(const char* kind, const char* level) { return {{"time", time_text()}, {"level", level}, {"kind", kind}}; }

}  // namespace

Json request_line_json(const RequestLine& line) {
  Json json = beginning("request", line.status >= 500 ? "warning" : "info");
  json["request_id"] = line.id;
  json["method"] = line.method;
  json["path"] = line.path;
  json["status"] = line.status;
  if (line.is_stream) json["stream"] = true;
  else json["bytes"] = line.bytes;
  json["ms"] = std::round(line.milliseconds * 100) / 100;
  if (!line.remote_address.empty()) json["remote"] = line.remote_address;
  if (!line.key.empty()) json["key"] = line.key;
  if (!line.job.empty()) json["job"] = line.job;
  return json;
}

Json job_line_json(const Event& event) {
  const bool failed = event.name == "job.failed";
  Json json = beginning("job", failed ? "warning" : "info");
  json["job"] = "job_" + event.job;
  json["state"] = event.name.substr(std::string_view("job.").size());
  if (!failed) return json;
  const Json data = Json::parse(event.data, nullptr, false);
  if (data.is_object() && data.contains("error") && data["error"].is_object())
    json["code"] = data["error"].value("code", std::string());  // the message may quote the request
  return json;
}

Json message_line_json(const std::string& level, const std::string& text) {
  Json json = beginning("message", level.c_str());
  json["message"] = text;
  return json;
}

std::string log_line_text(const Json& line) {
  const std::string kind = line.value("kind", std::string());
  const std::string time = line.value("time", std::string());
  if (kind == "job")
    return fmt::format("{} {} {}{}", time, line.value("job", ""), line.value("state", ""),
                       line.contains("code") ? ": " + line.value("code", std::string()) : "");
  if (kind != "request") return fmt::format("{} {}", time, line.value("message", ""));
  std::string text =
      fmt::format("{} {} {} {} {} {:.1f} ms {}", time, line.value("method", ""), line.value("path", ""), line.value("status", 0),
                  line.contains("bytes") ? fmt::format("{} B", line.value("bytes", uint64_t{0})) : "stream",
                  line.value("ms", 0.0), line.value("request_id", ""));
  if (line.contains("key")) text += " key " + line.value("key", std::string());
  if (line.contains("job")) text += " " + line.value("job", std::string());
  return text;
}

}  // namespace flux2
