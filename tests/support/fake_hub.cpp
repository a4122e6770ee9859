#include "tests/support/fake_hub.h"

#include <fmt/core.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <span>

#include "base/json.h"
#include "base/sha256.h"

namespace flux2::test {

namespace {

std::string sha256_text(const std::string& content) { return sha256(std::as_bytes(std::span(content))); }

std::string etag_of(const FakeHub::File& f) {
  return !f.etag.empty() ? f.etag : f.large ? sha256_text(f.content) : git_id(f.content);
}

Reply missing(const char* code) { return {.status = 404, .headers = {{"X-Error-Code", code}, {"X-Error-Message", "not there"}}}; }

}  // namespace

std::string git_id(const std::string& content) {
  const std::string blob = fmt::format("blob {}", content.size()) + '\0' + content;
  unsigned char digest[SHA_DIGEST_LENGTH];
  ::SHA1(reinterpret_cast<const unsigned char*>(blob.data()), blob.size(), digest);
  std::string text;
  for (const unsigned char c : digest) text += fmt::format("{:02x}", c);
  return text;
}

std::string random_bytes(size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string bytes((size + 7) / 8 * 8, '\0');
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, bytes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  bytes.resize(size);
  return bytes;
}

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "flux2-hub-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

FakeHub::FakeHub(std::map<std::string, File> all)
    : files(std::move(all)),
      storage_(std::make_unique<HttpServer>([this](const ServedRequest& r) { return answer_storage(r); })),
      hub_(std::make_unique<HttpServer>([this](const ServedRequest& r) { return answer_hub(r); })) {}

Reply FakeHub::answer_hub(const ServedRequest& request) {
  if (on_hub)
    if (auto reply = on_hub(request)) return *reply;
  const std::string api = fmt::format("/api/models/{}/", kRepository), file = fmt::format("/{}/resolve/", kRepository);
  const std::string path = request.target.substr(0, request.target.find('?'));
  if (path == api + "revision/main" || path == api + "revision/" + kCommit) return info();
  if (path == api + "tree/main" || path == api + "tree/" + kCommit) return tree(request);
  if (path.starts_with("/cache/")) {
    const File& f = files.at(path.substr(7));
    return {.headers = {{"ETag", "\"" + etag_of(f) + "\""}, {"X-Repo-Commit", kCommit}}, .body = f.content};
  }
  for (const std::string revision : {"main", kCommit})
    if (path.starts_with(file + revision + "/")) return resolve(path.substr((file + revision + "/").size()));
  return path.starts_with(api) || path.starts_with(file) ? missing("RevisionNotFound") : missing("RepoNotFound");
}

Reply FakeHub::info() const {
  return {.body =
              fmt::format(R"({{"sha":"{}","gated":{},"private":false,"cardData":{{"license":"apache-2.0"}}}})", kCommit, gated)};
}

Reply FakeHub::tree(const ServedRequest& request) const {
  const size_t at = request.target.find("cursor=");
  const size_t first = at == std::string::npos ? 0 : std::stoul(request.target.substr(at + 7));
  Json list = Json::array({Json{{"type", "directory"}, {"path", "folder"}, {"oid", "0"}, {"size", 0}}});
  size_t index = 0;
  for (const auto& [path, f] : files) {
    if (index >= first && index < first + page_size) {
      Json entry{{"type", "file"}, {"path", path}, {"size", f.content.size()}, {"oid", f.large ? git_id(path) : etag_of(f)}};
      if (f.large) entry["lfs"] = {{"oid", etag_of(f)}, {"size", f.content.size()}, {"pointerSize", 134}};
      list.push_back(std::move(entry));
    }
    ++index;
  }
  Reply reply{.body = list.dump()};
  if (first + page_size < files.size())
    reply.headers.push_back({"Link", fmt::format("<{}{}?recursive=true&cursor={}>; rel=\"next\"", hub_->url(),
                                                 request.target.substr(0, request.target.find('?')), first + page_size)});
  return reply;
}

Reply FakeHub::resolve(const std::string& path) {
  const auto found = files.find(path);
  if (found == files.end()) {
    Reply reply = missing("EntryNotFound");
    reply.headers.push_back({"X-Repo-Commit", kCommit});
    return reply;
  }
  const File& f = found->second;
  if (!f.large) return {.status = 307, .headers = {{"Location", "/cache/" + path}}};
  Reply reply{.status = 302,
              .headers = {{"Location", fmt::format("{}/{}?signature={}", storage_->url(), path, ++signatures_)}},
              .body = "Found"};
  if (tells_headers)
    for (auto& header : std::vector<std::pair<std::string, std::string>>{{"X-Repo-Commit", kCommit},
                                                                         {"X-Linked-Etag", "\"" + etag_of(f) + "\""},
                                                                         {"X-Linked-Size", std::to_string(f.content.size())},
                                                                         {"ETag", "\"something else\""}})
      reply.headers.push_back(header);
  return reply;
}

Reply FakeHub::answer_storage(const ServedRequest& request) {
  if (on_storage)
    if (auto reply = on_storage(request)) return *reply;
  const size_t query = request.target.find("?signature=");
  if (query == std::string::npos || std::stoi(request.target.substr(query + 11)) < oldest_signature)
    return {.status = 403, .body = "expired"};
  const std::string& content = files.at(request.target.substr(1, query - 1)).content;
  const auto range = request.range();
  if (!ranges || !range) return {.body = content, .bytes_per_s = storage_bytes_per_s};
  const uint64_t last = std::min<uint64_t>(range->second.value_or(content.size() - 1), content.size() - 1);
  if (range->first >= content.size())
    return {.status = 416, .headers = {{"Content-Range", fmt::format("bytes */{}", content.size())}}};
  return {.status = 206,
          .headers = {{"Content-Range", fmt::format("bytes {}-{}/{}", range->first, last, content.size())}},
          .body = content.substr(range->first, last - range->first + 1),
          .bytes_per_s = storage_bytes_per_s};
}

}  // namespace flux2::test
