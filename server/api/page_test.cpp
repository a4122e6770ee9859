#include "server/api/page.h"

#include <gmock/gmock.h>

#include <fstream>

#include "server/api/test_api.h"
#include "webui/files.h"

namespace flux2 {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class PageTest : public ApiTest {
 protected:
  HttpResponse file(const std::string& path, const std::string& encodings = "") {
    ServerRequest request{.method = "GET", .path = path};
    if (!encodings.empty()) request.headers = {{"accept-encoding", encodings}};
    return ask(std::move(request))->response.value_or(HttpResponse::empty(0));
  }
};

TEST_F(PageTest, LeadsToFilesThatNeverChange) {
  add_page_routes(router_);
  const HttpResponse page = file("/");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.headers, Contains(Pair("cache-control", "no-cache")));
  EXPECT_THAT(page.headers, Contains(Pair("content-security-policy", HasSubstr("default-src 'self'"))));
  const std::string main = "/ui/" + std::string(page_version()) + "/main.js";
  EXPECT_THAT(page.body, HasSubstr("src=\"" + main + "\""));
  EXPECT_THAT(page.body, Not(HasSubstr("{{")));
  EXPECT_THAT(file(main).headers, Contains(Pair("cache-control", HasSubstr("immutable"))));
}

TEST_F(PageTest, IsSentCompressedToThoseWhoTakeIt) {
  add_page_routes(router_);
  const HttpResponse plain = file("/ui/x/style.css"), small = file("/ui/x/style.css", "br, gzip");
  EXPECT_THAT(small.headers, Contains(Pair("content-encoding", "gzip")));
  EXPECT_THAT(plain.headers, Not(Contains(Pair("content-encoding", "gzip"))));
  EXPECT_LT(small.body.size(), plain.body.size());
  EXPECT_NE(small.etag, plain.etag);
  EXPECT_EQ(small.body.substr(0, 2), "\x1f\x8b");
  size_t whole = 0;
  for (const PageFile& f : page_files()) whole += f.gzip.size();
  EXPECT_LT(whole, 400'000u);
}

TEST_F(PageTest, HasNoOtherFiles) {
  add_page_routes(router_);
  for (const char* path : {"/ui/x/embed.cpp", "/ui/x/files.h", "/ui/x/nothing.js"}) EXPECT_EQ(file(path).status, 404) << path;
}

TEST_F(PageTest, IsReadFromAFolderByThoseWhoWorkOnIt) {
  const auto folder = folder_ / "page";
  std::filesystem::create_directories(folder / "tabs");
  std::ofstream(folder / "index.html") << "<script src=\"/ui/{{version}}/new.js\"></script>";
  std::ofstream(folder / "tabs" / "new.js") << "1";
  std::ofstream(folder / "secret.txt") << "2";
  add_page_routes(router_, folder);
  EXPECT_THAT(file("/").body, HasSubstr("/ui/dev/new.js"));
  EXPECT_EQ(file("/ui/dev/tabs/new.js").body, "1");
  EXPECT_THAT(file("/").headers, Contains(Pair("cache-control", "no-store")));
  for (const char* path : {"/ui/dev/secret.txt", "/ui/dev/tabs", "/ui/dev/gone.js"}) EXPECT_EQ(file(path).status, 404) << path;
}

// Every text that the page asks for exists, and other languages have no text that English lacks.
TEST_F(PageTest, EveryLanguageHasKnownTexts) {
  std::map<std::string, Json> texts;
  for (const PageFile& f : page_files())
    if (f.path.starts_with("lang/")) texts[std::string(f.path)] = Json::parse(f.plain);
  const Json& english = texts.at("lang/en.json");
  EXPECT_GT(english.size(), 100u);
  for (const auto& [name, language] : texts)
    for (const auto& [key, text] : language.items()) EXPECT_TRUE(english.contains(key)) << name << " " << key;
  for (const PageFile& f : page_files()) {
    if (!f.path.ends_with(".js")) continue;
    const std::string code(f.plain);
    for (size_t at = 0; (at = code.find("t(\"", at)) != code.npos; ++at) {
      if (at > 0 && std::isalnum(static_cast<unsigned char>(code[at - 1]))) continue;  // another function
      const std::string key = code.substr(at + 3, code.find('"', at + 3) - at - 3);
      EXPECT_TRUE(english.contains(key)) << f.path << " " << key;
    }
  }
}

}  // namespace
}  // namespace flux2
