#include "tests/support/fake_uploads.h"

#include <fmt/format.h>

#include <sstream>

#include "base/base64.h"
#include "base/json.h"
#include "base/sha256.h"

namespace flux2::test {

namespace {

constexpr size_t kSmall = 4096;  // files up to this size lie in the commit
const std::string kLfsJson = "application/vnd.git-lfs+json";

std::string decoded(const Json& text) {
  const std::vector<std::byte> bytes = base64_decode(text.get<std::string>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

FakeUploads::FakeUploads(FakeHub& hub) : hub_(hub) {
  hub.on_hub = [this](const ServedRequest& r) { return answer_hub(r); };
  hub.on_storage = [this](const ServedRequest& r) { return answer_storage(r); };
}

std::optional<Reply> FakeUploads::answer_hub(const ServedRequest& request) {
  if (request.method != "POST") return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (request.header("authorization") != std::string("Bearer ") + kToken) return Reply{.status = 401};
  const std::string repository = FakeHub::kRepository, api = "/api/models/" + repository;
  if (request.target == "/api/repos/create") return create(request);
  if (visibility_.empty()) return fault("upload before the repository exists");
  if (request.target == api + "/preupload/main") return modes(request);
  if (request.target == "/" + repository + ".git/info/lfs/objects/batch") return batch(request);
  if (request.target == "/verify") return verify(request);
  if (request.target == api + "/commit/main") return commit(request);
  return fault(request.target);
}

std::optional<Reply> FakeUploads::answer_storage(const ServedRequest& request) {
  if (request.method != "PUT") return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (!request.header("authorization").empty()) return fault("the token went to the storage");
  if (!request.header("content-type").empty()) return fault("the storage got the type " + request.header("content-type"));
  objects_[request.target.substr(1, 64)] = request.body;
  return Reply{.headers = {{"ETag", "\"part\""}}};
}

Reply FakeUploads::create(const ServedRequest& request) {
  const Json body = parse_json(request.body);
  if (fmt::format("{}/{}", body["organization"].get<std::string>(), body["name"].get<std::string>()) != FakeHub::kRepository ||
      body["type"] != "model")
    return fault("create " + request.body);
  const bool existed = !visibility_.empty();
  if (!existed) visibility_ = body["visibility"].get<std::string>();
  return {.status = existed ? 409 : 200, .body = "{}"};
}

Reply FakeUploads::modes(const ServedRequest& request) const {
  Json list = Json::array();
  const Json body = parse_json(request.body);
  for (const Json& f : body["files"])
    list.push_back(
        {{"path", f["path"]}, {"uploadMode", f["size"].get<size_t>() > kSmall ? "lfs" : "regular"}, {"shouldIgnore", false}});
  return {.body = Json{{"files", list}}.dump()};
}

Reply FakeUploads::batch(const ServedRequest& request) {
  if (request.header("content-type") != kLfsJson || request.header("accept") != kLfsJson) return fault("types of the batch");
  const Json body = parse_json(request.body);
  const std::string id = body["objects"][0]["oid"].get<std::string>();
  Json object = {{"oid", id}, {"size", body["objects"][0]["size"]}};
  if (!objects_.contains(id))
    object["actions"] = {{"upload", {{"href", fmt::format("{}/{}?signature=1", hub_.storage().url(), id)}}},
                         {"verify", {{"href", hub_.hub().url() + "/verify"}}}};
  return {.body = Json{{"transfer", "basic"}, {"objects", {object}}}.dump()};
}

Reply FakeUploads::verify(const ServedRequest& request) {
  const Json body = parse_json(request.body);
  const std::string id = body["oid"].get<std::string>(), &content = objects_[id];
  if (sha256(std::as_bytes(std::span(content))) != id || content.size() != body["size"].get<size_t>())
    return fault("the storage holds something else");
  return {.body = "{}"};
}

Reply FakeUploads::commit(const ServedRequest& request) {
  if (request.header("content-type") != "application/x-ndjson") return fault("type of the commit");
  std::istringstream lines(request.body);
  for (std::string line; std::getline(lines, line);) {
    const Json entry = parse_json(line);
    const Json& value = entry["value"];
    if (entry["key"] == "header") {
      summaries_.push_back(value["summary"].get<std::string>());
    } else if (entry["key"] == "lfsFile") {
      if (!objects_.contains(value["oid"].get<std::string>())) return fault("commit of an object that is not stored");
      files_[value["path"].get<std::string>()] = objects_[value["oid"].get<std::string>()];
    } else {
      files_[value["path"].get<std::string>()] = decoded(value["content"]);
    }
  }
  return {.body = "{}"};
}

Reply FakeUploads::fault(const std::string& what) {
  faults_.push_back(what);
  return {.status = 400, .body = what};
}

std::map<std::string, std::string> FakeUploads::files() const {
  const std::lock_guard lock(mutex_);
  return files_;
}
std::vector<std::string> FakeUploads::summaries() const {
  const std::lock_guard lock(mutex_);
  return summaries_;
}
std::vector<std::string> FakeUploads::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}
std::string FakeUploads::visibility() const {
  const std::lock_guard lock(mutex_);
  return visibility_;
}

}  // namespace flux2::test
