#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tests/support/http_server.h"

namespace flux2::test {

std::string git_id(const std::string& content);
std::string random_bytes(size_t size, unsigned seed);

// A folder that goes when the test does.
class ScratchFolder {
 public:
  ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A hub of one repository and its storage, on two ports. Large files answer with an absolute redirect to a signed address
// of the storage, small ones with a relative redirect within the hub. The settings may be changed while it runs;
// on_hub and on_storage see each request first and may answer in its place.
class FakeHub {
 public:
  struct File {
    std::string content;
    bool large = true;
    std::string etag = {};  // empty: the right one
  };
  using Override = std::function<std::optional<Reply>(const ServedRequest&)>;

  static constexpr const char* kRepository = "owner/model";
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  explicit FakeHub(std::map<std::string, File> files);

  std::map<std::string, File> files;
  Override on_hub, on_storage;
  std::string gated = "false";  // as JSON
  bool tells_headers = true;    // commit, etag and size with a file
  size_t page_size = 1000;
  std::atomic<bool> ranges = true;        // whether the storage honours them
  std::atomic<int> oldest_signature = 0;  // those before it have expired
  double storage_bytes_per_s = 0;         // of one connection

  std::string endpoint() const { return hub_->url(); }
  HttpServer& hub() { return *hub_; }
  HttpServer& storage() { return *storage_; }

 private:
  Reply answer_hub(const ServedRequest& request);
  Reply answer_storage(const ServedRequest& request);
  Reply info() const;
  Reply tree(const ServedRequest& request) const;
  Reply resolve(const std::string& path);

  std::atomic<int> signatures_ = 0;
  std::unique_ptr<HttpServer> storage_, hub_;
};

}  // namespace flux2::test
