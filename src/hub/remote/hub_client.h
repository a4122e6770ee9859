#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "hub/remote/hub_errors.h"
#include "hub/remote/hub_settings.h"
#include "hub/remote/retry.h"

namespace flux2 {

struct RepositoryInfo {
  std::string commit;   // what the revision stands for
  std::string licence;  // of its card; empty: not told
  bool gated = false;
};

struct RemoteFile {
  std::string path;
  uint64_t size = 0;
  std::string etag;  // SHA-256 of a large file, git blob id of a small one
};

struct FileMetadata {
  std::string commit, etag;  // empty: not told
  std::optional<uint64_t> size;
  std::string url;  // where the bytes come from; a signed address is good for minutes
};

std::string file_url(const HubSettings& hub, const std::string& repository, const std::string& revision, const std::string& path);

// Requests to the hub's API. May be used from any number of threads. No error, log line or name of a file contains the token,
// whatever the hub answers.
class HubClient {
 public:
  struct Manner {
    RetryRules retry = {};
    std::function<bool()> cancelled = {};
    Log log = {};
  };

  HubClient(const HttpClient& http, HubSettings settings, Manner manner);

  const HubSettings& settings() const { return settings_; }

  RepositoryInfo info(const std::string& repository, const std::string& revision) const;
  std::vector<RemoteFile> list(const std::string& repository, const std::string& revision) const;  // files, with safe paths

  // Empty: the repository has no such file.
  std::optional<FileMetadata> metadata(const std::string& repository, const std::string& revision, const std::string& path) const;

  HubQuestion question(const std::string& repository, const std::string& revision, const std::string& path = {}) const;

 private:
  RepositoryInfo asked_info(const std::string& repository, const std::string& revision) const;
  std::vector<RemoteFile> asked_list(const std::string& repository, const std::string& revision) const;
  std::optional<FileMetadata> asked_metadata(const std::string& repository, const std::string& revision,
                                             const std::string& path) const;
  HttpAnswer ask(const std::string& method, const std::string& url) const;

  const HttpClient& http_;
  HubSettings settings_;
  Manner manner_;
};

}  // namespace flux2
