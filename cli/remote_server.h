#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "net/http.h"

namespace flux2 {

// One server, as the actions of `flux2 client` use it. Requests end with Cancelled at Ctrl-C. What the server refuses becomes an
// Error with its message and its hint.
class RemoteServer {
 public:
  explicit RemoteServer(const Invocation& run);  // url and api-key of the settings

  Json ask(const std::string& method, const std::string& path, const Json& body = nullptr) const;
  std::string fetch(const std::string& path) const;                                        // the body of an answer
  void download(const std::string& path, const std::filesystem::path& file) const;         // large files; replaces `file`
  std::string upload(const std::filesystem::path& image, const std::string& bytes) const;  // returns the id of the asset

  // Calls `take` for every event until it returns false or the stream ends.
  using TakeEvent = std::function<bool(const std::string& name, const Json& data)>;
  void follow(const std::string& path, const TakeEvent& take) const;

 private:
  HttpRequest to(const std::string& method, const std::string& path) const;
  void refuse_failure(const HttpAnswer& answer) const;

  HttpClient client_;
  std::string url_, key_;
};

bool is_final_job(const Json& job);  // completed, failed or cancelled

// With a server that does not answer for a while: it may be starting again. The time counts from the first failure, however long
// ago the server answered: one request may follow its events for hours.
class ServerPatience {
 public:
  explicit ServerPatience(std::chrono::milliseconds at_most = std::chrono::seconds(120)) : at_most_(at_most) {}

  void answered() { failures_ = 0; }
  bool lasts(const Error& e);                     // whether to ask again after this failure
  bool is_new() const { return failures_ == 1; }  // the first failure since the last answer
  void wait() const;                              // a second. Ctrl-C ends it with Cancelled

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds at_most_;
  Clock::time_point failed_;  // the first of them
  int failures_ = 0;
};

}  // namespace flux2
