#include "train/log/hub_upload.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <span>

#include "base/base64.h"
#include "base/error.h"
#include "base/file_hash.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "hub/remote/hub_errors.h"
#include "net/hide_token.h"
#include "net/url.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLfsJson = "application/vnd.git-lfs+json";
constexpr size_t kSampleBytes = 512;
constexpr double kStorageTimeout = 60;  // without a byte

std::string json_body(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string file_part(const fs::path& file, uint64_t offset, uint64_t size) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes(static_cast<size_t>(size), '\0');
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  if (in.gcount() != static_cast<std::streamsize>(size)) fail(ErrorCode::NotFound, "cannot read {}", file.string());
  return bytes;
}

std::string base64_of(const std::string& bytes) { return base64_encode(std::as_bytes(std::span(bytes))); }

const Json* found_in(const Json& json, const char* key) {
  const auto at = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && at != json.end() ? &*at : nullptr;
}

std::string string_in(const Json& json, const char* key) {
  const Json* found = found_in(json, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

struct HubUpload::Item {
  fs::path file;
  std::string path;  // in the repository
  uint64_t size = 0;
  std::string sha256;
  bool large = false, ignored = false;
};

std::vector<UploadFile> files_to_upload(const fs::path& path) {
  if (!is_folder(path)) return {{path, path.filename().string()}};
  std::vector<UploadFile> files;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file())
      files.push_back({entry.path(), (path.filename() / entry.path().lexically_relative(path)).generic_string()});
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

HubUpload::HubUpload(UploadTarget target, HttpSender send, UploadManner manner)
    : target_(std::move(target)), send_(std::move(send)), manner_(std::move(manner)) {
  check(std::count(target_.repository.begin(), target_.repository.end(), '/') == 1 && !target_.repository.starts_with('/') &&
            !target_.repository.ends_with('/'),
        "\"{}\" is not a repository; write owner/name", printable(target_.repository));
  check(target_.type == "model" || target_.type == "dataset" || target_.type == "space",
        "\"{}\" is not a type of repository; use model, dataset or space", printable(target_.type));
  while (target_.folder.ends_with('/')) target_.folder.pop_back();
}

std::string HubUpload::api(const char* what) const {
  return fmt::format("{}/api/{}s/{}/{}/{}", target_.hub.endpoint, target_.type, url_quoted_path(target_.repository), what,
                     url_quoted(target_.revision));
}

HttpAnswer HubUpload::ask(HttpRequest request) const {
  request.cancelled = manner_.cancelled;
  request.idle_timeout_s = std::max(target_.hub.transfer_timeout_s, kStorageTimeout);
  Retry retry(manner_.retry, manner_.cancelled, manner_.log);
  for (;;) {
    HttpAnswer answer = send_(request);
    answer.failure = hide_token(std::move(answer.failure), target_.hub.token);
    if (!is_worth_retrying(answer)) return answer;
    retry.wait(answer, hide_token(printable(parse_url(request.url).host), target_.hub.token));
  }
}

Json HubUpload::post(const std::string& url, const Json& body, const char* content_type) const {
  const HttpAnswer answer = ask({.method = "POST",
                                 .url = url,
                                 .headers = {{"Content-Type", content_type}, {"Accept", content_type}},
                                 .body = json_body(body),
                                 .token = target_.hub.token_for(url)});
  if (!answer.ok()) fail_hub(answer, {target_.hub.endpoint, target_.repository, target_.revision, {}, target_.hub.token});
  return answer.body.empty() ? Json::object() : in_context("the answer of the hub", [&] { return parse_json(answer.body); });
}

void HubUpload::create_repository() const {
  const size_t slash = target_.repository.find('/');
  const std::string url = target_.hub.endpoint + "/api/repos/create";
  const Json body = {{"name", target_.repository.substr(slash + 1)},
                     {"organization", target_.repository.substr(0, slash)},
                     {"visibility", target_.is_public ? "public" : "private"},
                     {"type", target_.type}};
  const HttpAnswer answer = ask({.method = "POST",
                                 .url = url,
                                 .headers = {{"Content-Type", "application/json"}},
                                 .body = json_body(body),
                                 .token = target_.hub.token_for(url)});
  constexpr int kExists = 409;
  if (!answer.ok() && answer.status != kExists)
    fail_hub(answer, {target_.hub.endpoint, target_.repository, target_.revision, {}, target_.hub.token});
}

void HubUpload::upload(const std::vector<UploadFile>& files, const std::string& summary) const {
  hiding_token(target_.hub.token, [&] { send_all(files, summary); });
}

void HubUpload::send_all(const std::vector<UploadFile>& files, const std::string& summary) const {
  std::vector<Item> items;
  for (const UploadFile& f : files) {
    std::error_code failure;
    Item item{f.file, target_.folder.empty() ? f.name : target_.folder + "/" + f.name, fs::file_size(f.file, failure), {}};
    if (failure) fail(ErrorCode::NotFound, "cannot upload {}: {}", f.file.string(), failure.message());
    items.push_back(std::move(item));
  }
  ask_modes(items);
  std::erase_if(items, [](const Item& item) { return item.ignored; });
  if (items.empty()) return;
  for (Item& item : items) {
    if (!item.large) continue;
    item.sha256 = sha256_of_file(item.file);
    store(item);
  }
  commit(items, summary);
}

// The hub decides by size and content which files go to its storage.
void HubUpload::ask_modes(std::vector<Item>& items) const {
  Json list = Json::array();
  for (const Item& item : items)
    list.push_back({{"path", item.path},
                    {"size", item.size},
                    {"sample", base64_of(file_part(item.file, 0, std::min<uint64_t>(kSampleBytes, item.size)))}});
  const Json answer = post(api("preupload"), {{"files", list}}, "application/json");
  const Json* files = found_in(answer, "files");
  if (files == nullptr || !files->is_array()) fail(ErrorCode::Network, "the hub does not say how to upload");
  for (Item& item : items) {
    const auto at = std::find_if(files->begin(), files->end(), [&](const Json& f) { return string_in(f, "path") == item.path; });
    if (at == files->end()) fail(ErrorCode::Network, "the hub does not say how to upload {}", printable(item.path));
    item.large = string_in(*at, "uploadMode") == "lfs";
    const Json* ignore = found_in(*at, "shouldIgnore");
    item.ignored = ignore != nullptr && ignore->is_boolean() && ignore->get<bool>();
  }
}

void HubUpload::store(const Item& item) const {
  const std::string kind = target_.type == "model" ? "" : target_.type + "s/";
  const std::string url =
      fmt::format("{}/{}{}.git/info/lfs/objects/batch", target_.hub.endpoint, kind, url_quoted_path(target_.repository));
  const Json answer = post(url,
                           {{"operation", "upload"},
                            {"transfers", {"basic", "multipart"}},
                            {"objects", {{{"oid", item.sha256}, {"size", item.size}}}},
                            {"hash_algo", "sha256"},
                            {"ref", {{"name", target_.revision}}}},
                           kLfsJson);
  const Json* objects = found_in(answer, "objects");
  if (objects == nullptr || !objects->is_array() || objects->size() != 1)
    fail(ErrorCode::Network, "the hub does not say where to put {}", printable(item.path));
  if (const Json* error = found_in((*objects)[0], "error"))
    fail(ErrorCode::Network, "the hub does not take {}: {}", printable(item.path), printable(string_in(*error, "message")));
  const Json* actions = found_in((*objects)[0], "actions");
  const Json* action = actions == nullptr ? nullptr : found_in(*actions, "upload");
  if (action == nullptr) return;  // it is there already
  const Json* header = found_in(*action, "header");
  if (header != nullptr && header->contains("chunk_size")) {
    store_parts(item, *action);
  } else {
    std::vector<HttpHeader> headers;
    if (header != nullptr && header->is_object())
      for (const auto& [name, value] : header->items())
        if (value.is_string()) headers.push_back({name, value.get<std::string>()});
    put(item, 0, item.size, string_in(*action, "href"), std::move(headers));
  }
  if (const Json* verify = found_in(*actions, "verify"))
    post(string_in(*verify, "href"), {{"oid", item.sha256}, {"size", item.size}}, kLfsJson);
}

// The header of the action holds the size of a part and, under the names 1, 2, …, where each part goes.
void HubUpload::store_parts(const Item& item, const Json& action) const {
  const Json& header = action["header"];
  const auto part_size =
      decimal(header["chunk_size"].is_string() ? header["chunk_size"].get<std::string>() : header["chunk_size"].dump());
  if (!part_size || *part_size == 0) fail(ErrorCode::Network, "the hub gives no size for the parts of {}", printable(item.path));
  std::map<uint64_t, std::string> urls;
  for (const auto& [name, value] : header.items())
    if (const auto number = decimal(name); number && value.is_string()) urls[*number] = value.get<std::string>();
  const uint64_t count = (item.size + *part_size - 1) / *part_size;
  if (urls.size() != count)
    fail(ErrorCode::Network, "the hub gives {} addresses for the {} parts of {}", urls.size(), count, printable(item.path));
  Json parts = Json::array();
  uint64_t offset = 0;
  for (const auto& [number, url] : urls) {
    const uint64_t size = std::min(*part_size, item.size - offset);
    parts.push_back({{"partNumber", number}, {"etag", put(item, offset, size, url, {})}});
    offset += size;
  }
  post(string_in(action, "href"), {{"oid", item.sha256}, {"parts", parts}}, kLfsJson);
}

// Signed addresses carry their own permission; the token is not for them. Returns the ETag.
std::string HubUpload::put(const Item& item, uint64_t offset, uint64_t size, const std::string& url,
                           std::vector<HttpHeader> headers) const {
  if (parse_url(target_.hub.endpoint).secure() && !parse_url(url).secure())
    fail(ErrorCode::Network, "the hub wants to store {} over plain http, which is refused", printable(item.path));
  const HttpAnswer answer =
      ask({.method = "PUT", .url = url, .headers = std::move(headers), .body = file_part(item.file, offset, size)});
  if (!answer.ok())
    fail(ErrorCode::Network, "the storage of the hub does not take {}: {}", printable(item.path), in_words(answer));
  return answer.header("ETag").value_or("");  // with its quotes, as the hub wants it back
}

void HubUpload::commit(const std::vector<Item>& items, const std::string& summary) const {
  std::string lines = json_body({{"key", "header"}, {"value", {{"summary", summary}, {"description", ""}}}}) + "\n";
  for (const Item& item : items) {
    const Json value =
        item.large
            ? Json{{"path", item.path}, {"algo", "sha256"}, {"oid", item.sha256}, {"size", item.size}}
            : Json{{"path", item.path}, {"content", base64_of(file_part(item.file, 0, item.size))}, {"encoding", "base64"}};
    lines += json_body({{"key", item.large ? "lfsFile" : "file"}, {"value", value}}) + "\n";
  }
  const std::string url = api("commit");
  const HttpAnswer answer = ask({.method = "POST",
                                 .url = url,
                                 .headers = {{"Content-Type", "application/x-ndjson"}},
                                 .body = std::move(lines),
                                 .token = target_.hub.token_for(url)});
  if (!answer.ok()) fail_hub(answer, {target_.hub.endpoint, target_.repository, target_.revision, {}, target_.hub.token});
}

}  // namespace flux2
