#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "hub/remote/hub_settings.h"
#include "hub/remote/retry.h"
#include "net/http.h"

namespace flux2 {

struct UploadTarget {
  HubSettings hub;
  std::string repository;      // owner/name
  std::string type = "model";  // or dataset, space
  bool is_public = false;
  std::string folder = {};  // in the repository; empty: its root
  std::string revision = "main";
};

struct UploadFile {
  std::filesystem::path file;
  std::string name;  // below the target's folder
};
std::vector<UploadFile> files_to_upload(const std::filesystem::path& file_or_folder);  // a folder keeps its name

// Sends one request: HttpClient::send, or a test.
using HttpSender = std::function<HttpAnswer(const HttpRequest&)>;

struct UploadManner {
  RetryRules retry = {.tries = 4};
  std::function<bool()> cancelled = {};
  Log log = {};
};

// Puts files into a repository of the hub: large ones by way of its storage, small ones inside the commit. The token goes to the
// hub and nowhere else, and no error contains it.
class HubUpload {
 public:
  HubUpload(UploadTarget target, HttpSender send, UploadManner manner = {});

  void create_repository() const;                                                       // it may exist
  void upload(const std::vector<UploadFile>& files, const std::string& summary) const;  // one commit

 private:
  struct Item;

  void send_all(const std::vector<UploadFile>& files, const std::string& summary) const;
  HttpAnswer ask(HttpRequest request) const;
  Json post(const std::string& url, const Json& body, const char* content_type) const;
  void ask_modes(std::vector<Item>& items) const;
  void store(const Item& item) const;
  void store_parts(const Item& item, const Json& upload) const;
  std::string put(const Item& item, uint64_t offset, uint64_t size, const std::string& url,
                  std::vector<HttpHeader> headers) const;
  void commit(const std::vector<Item>& items, const std::string& summary) const;
  std::string api(const char* what) const;

  UploadTarget target_;
  HttpSender send_;
  UploadManner manner_;
};

}  // namespace flux2
