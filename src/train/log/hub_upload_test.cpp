#include "train/log/hub_upload.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <set>

#include "base/base64.h"
#include "base/error.h"
#include "base/sha256.h"
#include "net/url.h"
#include "train/log/test_folder.h"
#include "train/log/upload_queue.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string hash_of(const std::string& bytes) { return sha256(std::as_bytes(std::span(bytes))); }

std::string header_in(const HttpRequest& request, const std::string& name) {
  for (const HttpHeader& h : request.headers)
    if (h.name == name) return h.value;
  return "";
}

// A hub of one repository, and its storage on another host. It accepts what the protocol allows and nothing else.
class UploadHub {
 public:
  std::map<std::string, std::string> files;    // of the repository, after commits
  std::map<std::string, std::string> objects;  // of the storage, by hash
  std::vector<std::string> summaries;
  std::string visibility;
  size_t part_size = 0;        // 0: whole files
  int failures = 0;            // of the storage, before it works
  bool exists = false;         // the repository
  std::string token = "hf_t";  // that is accepted
  std::vector<std::string> faults;
  std::vector<std::string> asked;

  HttpAnswer operator()(const HttpRequest& request) {
    const Url url = parse_url(request.url);
    asked.push_back(request.method + " " + url.host + url.target);
    HttpAnswer answer;
    answer.url = request.url;
    answer.status = 200;
    if (url.host == "storage") {
      if (!request.token.empty()) faults.push_back("the token went to the storage");
      store(request, url, answer);
    } else if (request.token != token) {
      answer.status = 401;
    } else {
      serve(request, url, answer);
    }
    return answer;
  }

 private:
  void serve(const HttpRequest& request, const Url& url, HttpAnswer& answer) {
    const bool lines = url.target == "/api/models/me/cat/commit/main";
    const Json body = lines ? Json() : parse_json(request.body);
    if (url.target == "/api/repos/create") {
      if (body["name"] != "cat" || body["organization"] != "me" || body["type"] != "model")
        faults.push_back("create " + body.dump());
      visibility = body["visibility"].get<std::string>();
      answer.status = std::exchange(exists, true) ? 409 : 200;
    } else if (url.target == "/api/models/me/cat/preupload/main") {
      Json modes = Json::array();
      for (const Json& f : body["files"]) {
        const std::string path = f["path"].get<std::string>();
        if (base64_decode(f["sample"].get<std::string>()).size() != std::min<size_t>(512, f["size"].get<size_t>()))
          faults.push_back("sample");
        modes.push_back({{"path", path},
                         {"uploadMode", f["size"].get<size_t>() > 600 ? "lfs" : "regular"},
                         {"shouldIgnore", path.ends_with(".ignored")}});
      }
      answer.body = Json{{"files", modes}}.dump();
    } else if (url.target == "/me/cat.git/info/lfs/objects/batch") {
      if (header_in(request, "Content-Type") != "application/vnd.git-lfs+json" ||
          header_in(request, "Accept") != "application/vnd.git-lfs+json")
        faults.push_back("content type of the batch");
      const std::string oid = body["objects"][0]["oid"].get<std::string>();
      sizes_[oid] = body["objects"][0]["size"].get<size_t>();
      Json object = {{"oid", oid}, {"size", sizes_[oid]}};
      if (!objects.contains(oid)) object["actions"] = actions(oid);
      answer.body = Json{{"transfer", "basic"}, {"objects", {object}}}.dump();
    } else if (url.target.starts_with("/complete/")) {
      std::string whole;
      int number = 1;
      for (const Json& part : body["parts"]) {
        if (part["partNumber"] != number++ || part["etag"] != "\"" + hash_of(parts_[part["partNumber"].get<size_t>()]) + "\"")
          faults.push_back("etag");
        whole += parts_[part["partNumber"].get<size_t>()];
      }
      objects[body["oid"].get<std::string>()] = whole;
    } else if (url.target.starts_with("/verify/")) {
      const std::string oid = body["oid"].get<std::string>();
      if (hash_of(objects[oid]) != oid || objects[oid].size() != body["size"].get<size_t>()) faults.push_back("verify");
      verified_.insert(oid);
    } else if (lines) {
      commit(request.body);
    } else {
      answer.status = 404;
    }
  }

  Json actions(const std::string& oid) const {
    Json upload = {{"href", "https://storage/" + oid + "?signature=1"}, {"header", {{"x-extra", "yes"}}}};
    if (part_size > 0) {
      upload = {{"href", "https://hub/complete/" + oid}, {"header", {{"chunk_size", std::to_string(part_size)}}}};
      for (size_t n = 1; (n - 1) * part_size < sizes_.at(oid); ++n)
        upload["header"][fmt::format("{:05}", n)] = fmt::format("https://storage/part/{}", n);
    }
    return {{"upload", upload}, {"verify", {{"href", "https://hub/verify/" + oid}}}};
  }

  void store(const HttpRequest& request, const Url& url, HttpAnswer& answer) {
    if (request.method != "PUT") faults.push_back("method");
    if (failures > 0) {
      --failures;
      answer.status = 503;
    } else if (url.target.starts_with("/part/")) {
      parts_[std::stoul(url.target.substr(6))] = request.body;
      answer.headers = {{"ETag", "\"" + hash_of(request.body) + "\""}};
    } else {
      if (header_in(request, "x-extra") != "yes") faults.push_back("header of the action");
      objects[url.target.substr(1, 64)] = request.body;
    }
  }

  void commit(const std::string& body) {
    std::istringstream lines(body);
    for (std::string line; std::getline(lines, line);) {
      const Json json = parse_json(line);
      const Json& value = json["value"];
      if (json["key"] == "header") {
        summaries.push_back(value["summary"].get<std::string>());
      } else if (json["key"] == "lfsFile") {
        if (!verified_.contains(value["oid"].get<std::string>()) && !objects.contains(value["oid"].get<std::string>()))
          faults.push_back("not stored");
        files[value["path"].get<std::string>()] = objects[value["oid"].get<std::string>()];
      } else {
        const auto bytes = base64_decode(value["content"].get<std::string>());
        files[value["path"].get<std::string>()] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
  }

  std::map<std::string, size_t> sizes_;
  std::map<size_t, std::string> parts_;
  std::set<std::string> verified_;
};

UploadTarget target_of(const std::string& folder = "") {
  UploadTarget target;
  target.hub.endpoint = "https://hub";
  target.hub.token = "hf_t";
  target.repository = "me/cat";
  target.folder = folder;
  return target;
}

UploadManner quick_manner() {
  UploadManner manner;
  manner.retry = {.tries = 3, .first_s = 0.001};
  return manner;
}

std::string content_of_size(size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(i * 31 + i / 256);
  return text;
}

TEST(HubUpload, PutsLargeAndSmallFilesIntoOneCommit) {
  for (const size_t part_size : {size_t{0}, size_t{1000}, size_t{2500}}) {
    const TestFolder folder;
    UploadHub hub;
    hub.part_size = part_size;
    hub.failures = 1;
    const std::string large = content_of_size(2500), small = "hello";
    std::ofstream(folder / "cat.safetensors") << large;
    std::ofstream(folder / "note.txt") << small;
    std::ofstream(folder / "x.ignored") << small;
    const HubUpload upload(target_of("loras/"), std::ref(hub), quick_manner());
    upload.create_repository();
    upload.create_repository();
    upload.upload(
        {{folder / "cat.safetensors", "cat.safetensors"}, {folder / "note.txt", "note.txt"}, {folder / "x.ignored", "x.ignored"}},
        "step 10");
    EXPECT_THAT(hub.files, ElementsAre(Pair("loras/cat.safetensors", large), Pair("loras/note.txt", small)));
    EXPECT_THAT(hub.summaries, ElementsAre("step 10"));
    EXPECT_EQ(hub.visibility, "private");
    EXPECT_THAT(hub.faults, ElementsAre());

    hub.asked.clear();  // a file that the storage has is not sent again
    upload.upload(files_to_upload(folder / "cat.safetensors"), "again");
    for (const std::string& request : hub.asked) EXPECT_THAT(request, ::testing::Not(HasSubstr("PUT")));
    EXPECT_THAT(hub.faults, ElementsAre());
  }
}

TEST(HubUpload, FailuresAreWarningsInTheQueue) {
  const TestFolder folder;
  fs::create_directories(folder / "cat-state");
  std::ofstream(folder / "cat-state" / "state.json") << "{}";
  std::ofstream(folder / "cat-state" / "adapter.safetensors") << content_of_size(700);
  for (const bool in_background : {false, true}) {
    UploadHub hub;
    std::vector<std::string> warnings;
    const Log log([&](LogLevel, const std::string& text) { warnings.push_back(text); });
    {
      UploadQueue queue(HubUpload(target_of(), std::ref(hub), quick_manner()), in_background, log);
      queue.add(folder / "cat-state", "state");
      queue.add(folder / "gone.safetensors", "gone");
      queue.finish();
    }
    EXPECT_THAT(hub.files,
                ElementsAre(Pair("cat-state/adapter.safetensors", content_of_size(700)), Pair("cat-state/state.json", "{}")));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_THAT(warnings[0], HasSubstr("gone.safetensors was not uploaded: cannot upload"));
    hub.token = "another";
    UploadQueue refused(HubUpload(target_of(), std::ref(hub), quick_manner()), in_background, log);
    refused.add(folder / "cat-state", "state");
    refused.finish();
    ASSERT_EQ(warnings.size(), 2u);
    EXPECT_THAT(warnings[1], ::testing::Not(HasSubstr("hf_t")));
    EXPECT_THAT(hub.faults, ElementsAre());
  }
}

TEST(HubUpload, RefusesWhatIsNoRepository) {
  UploadTarget target = target_of();
  for (const char* name : {"cat", "/cat", "me/", "a/b/c", ""}) {
    target.repository = name;
    EXPECT_THROW(HubUpload(target, {}), Error) << name;
  }
  target = target_of();
  target.type = "paper";
  EXPECT_THROW(HubUpload(target, {}), Error);
}

}  // namespace
}  // namespace flux2
