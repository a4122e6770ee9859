#include "hub/remote/source.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "hub/remote/hub_cache.h"

namespace flux2 {
namespace {

using Paths = std::vector<std::string>;

TEST(Source, EveryForm) {
  Source s = *parse_source("black-forest-labs/FLUX.2-klein-4B");
  EXPECT_EQ(s.repository, "black-forest-labs/FLUX.2-klein-4B");
  EXPECT_EQ(s.revision, "main");
  s = *parse_source("owner/repo@refs/pr/3:Q4_K_M");
  EXPECT_EQ(s.revision, "refs/pr/3");
  EXPECT_EQ(s.variant, "Q4_K_M");
  s = *parse_source("owner/repo::split_files/vae/");
  EXPECT_EQ(s.paths, Paths{"split_files/vae"});
  EXPECT_EQ(s.variant, "");
  s = *parse_source("owner/repo@v1:fp8::a/b.gguf+c");
  EXPECT_EQ(s.variant, "fp8");
  EXPECT_EQ(s.paths, (Paths{"a/b.gguf", "c"}));
  s = *parse_source("https://example.org/files/x.safetensors?download=1");
  EXPECT_EQ(s.repository, "");
  EXPECT_EQ(s.url, "https://example.org/files/x.safetensors?download=1");
}

TEST(Source, PagesOfTheHubAreItsRepositories) {
  Source s = *parse_source("https://huggingface.co/owner/repo");
  EXPECT_EQ(s.repository, "owner/repo");
  EXPECT_TRUE(s.paths.empty());
  s = *parse_source("https://huggingface.co/owner/repo/blob/v%2F1/a%20b/x.gguf?download=true");
  EXPECT_EQ(s.revision, "v/1");
  EXPECT_EQ(s.paths, Paths{"a b/x.gguf"});
  s = *parse_source("http://127.0.0.1:5/owner/repo/resolve/main/x.gguf", "http://127.0.0.1:5");
  EXPECT_EQ(s.paths, Paths{"x.gguf"});
  EXPECT_EQ(parse_source("http://127.0.0.1:6/owner/repo/resolve/main/x.gguf", "http://127.0.0.1:5")->repository, "");
}

TEST(Source, OtherTextsAreNotSources) {
  for (const char* other : {"", "klein-4b", "./owner/repo", "/abs/path", "../x", "a/b/c", "owner/", "/repo", "~/x",
                            "file.safetensors", "owner/.hidden", "ow ner/x"})
    EXPECT_FALSE(parse_source(other)) << other;
}

TEST(Source, IncompleteSourcesAreErrors) {
  for (const char* half : {"owner/repo@", "owner/repo:", "owner/repo::", "owner/repo::../x", "owner/repo::a+", "owner/repo@../..",
                           "https://example.org/", "http://me:pw@x/y"})
    EXPECT_THROW(parse_source(half), Error) << half;
}

TEST(Source, RoundTripsAsText) {
  for (const char* text : {"owner/repo", "owner/repo@v1", "owner/repo:fp8", "owner/repo::a+b/c", "owner/repo@v1:fp8::a",
                           "https://example.org/x.gguf"})
    EXPECT_EQ(parse_source(text)->text(), text);
}

TEST(SafePath, AcceptsOnlyOrdinaryRelativeNames) {
  for (const char* good : {"a", "a/b.json", ".gitattributes", "a b/ü.txt", "..a", "a..b/c", "console.txt"})
    EXPECT_TRUE(is_safe_path(good)) << good;
  for (const std::string& bad :
       {std::string(""), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."), std::string("a/.."),
        std::string("../a"), std::string("a\\b"), std::string("a\0b", 3), std::string("a\nb"), std::string("c:x"),
        std::string("NUL"), std::string("a/con.txt"), std::string("lpt1"), std::string(300, 'a')})
    EXPECT_FALSE(is_safe_path(bad)) << bad;
}

}  // namespace
}  // namespace flux2
