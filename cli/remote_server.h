#pragma once

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

}  // namespace flux2
