// One file by its address, into a plain folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "hub/remote/fetch.h"
#include "hub/remote/transfer.h"
#include "tests/support/fake_hub.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::HttpServer;
using test::Reply;
using test::ScratchFolder;
using test::ServedRequest;
using testing::HasSubstr;

struct FetchUrl : testing::Test {
  FetchOptions options() const {
    FetchOptions o;
    o.local_dir = scratch.path();
    o.hub.token = "hf_secret";
    o.retry.first_s = 0.01;
    return o;
  }
  ScratchFolder scratch;
  const std::string all = test::random_bytes(300000, 9);
};

TEST_F(FetchUrl, DownloadsAndHashes) {
  HttpServer server([&](const ServedRequest& r) {
    EXPECT_EQ(r.header("authorization"), "");
    if (r.target == "/get") return Reply{.status = 302, .headers = {{"Location", "/files/1"}}};
    return Reply{.headers = {{"ETag", "\"v1\""}, {"Content-Disposition", "attachment; filename=\"a model.safetensors\""}},
                 .body = all};
  });
  const Downloaded got = fetch_source(*parse_source(server.url() + "/get"), options());
  ASSERT_EQ(got.files.size(), 1u);
  EXPECT_EQ(got.files[0].local, scratch.path() / "a model.safetensors");
  EXPECT_EQ(got.files[0].sha256, sha256(std::as_bytes(std::span(all))));
  EXPECT_EQ(read_text_file(got.files[0].local), all);
  EXPECT_EQ(got.url, server.url() + "/get");
  EXPECT_TRUE(fetch_source(*parse_source(server.url() + "/get"), options()).files[0].was_present);
}

// Some servers write a name with other letters than ASCII in this form alone.
TEST_F(FetchUrl, NamesOfOtherLetters) {
  std::string told;
  HttpServer server([&](const ServedRequest&) { return Reply{.headers = {{"Content-Disposition", told}}, .body = all}; });
  const auto name = [&] {
    return fetch_source(*parse_source(server.url() + "/api/download/5"), options()).files.at(0).local.filename().string();
  };
  told = "attachment; filename*=UTF-8''mod%C3%A8le%20a.safetensors";
  EXPECT_EQ(name(), "modèle a.safetensors");
  told = "attachment; filename=\"modele.gguf\"; filename*=utf-8'fr'mod%C3%A8le.gguf";
  EXPECT_EQ(name(), "modèle.gguf");
  told = "attachment; filename*=latin1''x.gguf; filename=\"y.gguf\"";
  EXPECT_EQ(name(), "y.gguf");
  told = "attachment; filename*=UTF-8''..%2Fx.gguf";
  EXPECT_THROW(name(), Error);
}

// What was begun of a longer file must not stay behind the end of a shorter one.
TEST_F(FetchUrl, AFileThatBecameShorterHasItsNewSize) {
  std::string etag = "\"v1\"", body = all;
  bool broken = true;
  HttpServer server([&](const ServedRequest&) {
    Reply reply{.headers = {{"ETag", etag}}, .body = body};
    if (broken) reply.drop_after = 250000;
    return reply;
  });
  FetchOptions o = options();
  o.retry.tries = 1;
  const Source source = *parse_source(server.url() + "/m.gguf");
  EXPECT_THROW(fetch_source(source, o), Error);
  broken = false;
  etag = "\"v2\"";
  body = test::random_bytes(1000, 4);
  EXPECT_EQ(read_text_file(fetch_source(source, o).files.at(0).local), body);
}

TEST_F(FetchUrl, CheckingAFileThatIsHereCanBeCancelled) {
  HttpServer server([&](const ServedRequest&) { return Reply{.body = all}; });
  const Source source = *parse_source(server.url() + "/m.gguf");
  fetch_source(source, options());
  FetchOptions o = options();
  const FetchPlan plan = plan_fetch(source, o);
  ASSERT_TRUE(plan.files.at(0).present);
  int asked = 0;
  o.cancelled = [&] { return ++asked > 1; };  // the first time is before the file
  try {
    fetch(plan, o);
    ADD_FAILURE() << "it was not cancelled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Cancelled);
  }
}

// A server that does not tell the size could send bytes until the disk is full.
TEST_F(FetchUrl, AFileOfUnknownSizeHasALimit) {
  HttpServer server([&](const ServedRequest&) { return Reply{.body = all, .content_length = false}; });
  const Source source = *parse_source(server.url() + "/m.gguf");
  FetchOptions o = options();
  const auto refusal = [&]() -> std::string {
    try {
      fetch_source(source, o);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::CannotWrite);
      return e.what();
    }
    return "";
  };
  o.largest_file = 200'000;
  EXPECT_THAT(refusal(), HasSubstr("more than 195 KiB, which is the limit"));
  EXPECT_TRUE(fs::is_empty(scratch.path())) << "what was received is deleted";
  o = options();
  o.free_space = [&](const fs::path&) { return o.keep_free - 1; };
  EXPECT_THAT(refusal(), HasSubstr("does not tell its size"));
  EXPECT_FALSE(fs::exists(scratch.path() / "m.gguf"));
  o = options();
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(read_text_file(scratch.path() / "m.gguf"), all);
}

TEST_F(FetchUrl, AFileLargerThanTheLimitIsNotBegun) {
  HttpServer server([&](const ServedRequest&) { return Reply{.body = all}; });
  FetchOptions o = options();
  o.largest_file = all.size() - 1;
  EXPECT_THROW(fetch_source(*parse_source(server.url() + "/m.gguf"), o), Error);
  EXPECT_EQ(server.body_bytes_sent(), 0u);
}

TEST_F(FetchUrl, PartialFileThatIsALinkIsNotFollowed) {
  HttpServer server([&](const ServedRequest&) { return Reply{.body = all}; });
  std::ofstream(scratch.path() / "victim") << "precious";
  fs::create_symlink("victim", scratch.path() / "m.gguf.part");
  EXPECT_THROW(fetch_source(*parse_source(server.url() + "/m.gguf"), options()), Error);
  EXPECT_EQ(read_text_file(scratch.path() / "victim"), "precious");
}

// A server that breaks off in the middle; then one that goes on, answers 200 to a range, or has changed its file.
TEST_F(FetchUrl, ResumesWithTheServersETag) {
  std::string etag = "\"v1\"", body = all;
  bool broken = true, ranges = true, knows_size = true;
  HttpServer server([&](const ServedRequest& r) {
    Reply reply{.headers = {{"ETag", etag}}, .body = body, .content_length = knows_size};
    if (r.method == "GET" && broken) reply.drop_after = 100000;
    const auto range = r.range();
    if (range && ranges && range->first >= body.size())
      return Reply{.status = 416, .headers = {{"Content-Range", fmt::format("bytes */{}", body.size())}}};
    if (range && ranges) {
      reply.status = 206;
      reply.headers.push_back({"Content-Range", fmt::format("bytes {}-{}/{}", range->first, body.size() - 1, body.size())});
      reply.body = body.substr(range->first);
    }
    return reply;
  });
  FetchOptions o = options();
  const Source source = *parse_source(server.url() + "/m.gguf");
  const auto start = [&] {
    fs::remove(scratch.path() / "m.gguf");
    broken = true;
    o.retry.tries = 1;
    EXPECT_THROW(fetch_source(source, o), Error);
    o.retry.tries = 8;
    broken = false;
    server.forget();
  };
  const auto finish = [&] { return read_text_file(fetch_source(source, o).files.at(0).local); };

  start();
  EXPECT_EQ(finish(), all);
  EXPECT_EQ(server.requests().back().header("range"), "bytes=100000-299999");
  EXPECT_EQ(server.body_bytes_sent(), 200000u);
  start();
  ranges = false;
  EXPECT_EQ(finish(), all);
  EXPECT_EQ(server.body_bytes_sent(), 300000u);
  ranges = true;
  start();
  etag = "\"v2\"";
  body = test::random_bytes(300000, 10);
  EXPECT_EQ(finish(), body);
  EXPECT_EQ(server.requests().back().header("range"), "");
  knows_size = false;  // nothing but the end of the connection ends the body
  fs::remove(scratch.path() / "m.gguf");
  broken = false;
  EXPECT_EQ(finish(), body);
}

// A server whose file is replaced after it was asked for its size and mark. Without If-Range, the file would consist of the first
// bytes of one version and the last bytes of another.
struct ReplacedFile : FetchUrl {
  Reply answer(const ServedRequest& r) {
    const bool old = r.method == "HEAD" || broken;
    const std::string& body = old ? first : second;
    const std::vector<std::pair<std::string, std::string>>& marks = old ? first_marks : second_marks;
    Reply reply{.headers = marks, .body = body};
    if (broken && r.method == "GET") reply.drop_after = body.size() / 3;
    const auto range = r.range();
    const std::string wanted = r.header("if-range");
    const bool same = wanted.empty() || std::ranges::any_of(marks, [&](const auto& mark) { return mark.second == wanted; });
    if (!range || !same) return reply;
    const uint64_t last = range->second.value_or(body.size() - 1);
    reply.status = 206;
    reply.headers.push_back({"Content-Range", fmt::format("bytes {}-{}/{}", range->first, last, body.size())});
    reply.body = body.substr(range->first, last - range->first + 1);
    if (broken) reply.drop_after = reply.body.size() / 3;
    return reply;
  }
  // Begins with the first version, and continues when the server has the second one.
  std::string resumed(size_t size) {
    first = test::random_bytes(size, 1), second = test::random_bytes(size, 2);
    fs::remove(scratch.path() / "m.gguf");
    HttpServer server([this](const ServedRequest& r) { return answer(r); });
    const Source source = *parse_source(server.url() + "/m.gguf");
    FetchOptions o = options();
    o.retry.tries = 1;
    broken = true;
    EXPECT_THROW(fetch_source(source, o), Error);
    o.retry.tries = 8;
    broken = false;
    server.forget();
    std::string got = read_text_file(fetch_source(source, o).files.at(0).local, {.bytes = 64 << 20});
    sent.clear();
    for (const ServedRequest& r : server.requests())
      if (r.range()) sent.push_back(r.header("if-range"));
    return got;
  }

  std::string first, second;
  std::vector<std::pair<std::string, std::string>> first_marks = {{"ETag", "\"v1\""}}, second_marks = {{"ETag", "\"v2\""}};
  std::atomic<bool> broken = false;
  std::vector<std::string> sent;  // If-Range of the requests for parts
};

TEST_F(ReplacedFile, IsDownloadedFromItsFirstByte) {
  EXPECT_TRUE(resumed(300'000) == second);
  EXPECT_THAT(sent, testing::Each("\"v1\""));
  EXPECT_FALSE(sent.empty());
}

TEST_F(ReplacedFile, IsDownloadedFromItsFirstByteInSeveralParts) {
  const size_t size = 10 << 20;
  ASSERT_LT(segment_size(size), size);
  EXPECT_TRUE(resumed(size) == second);
  EXPECT_THAT(sent, testing::Contains("\"v1\""));
}

TEST_F(ReplacedFile, IsNoticedByItsDateToo) {
  first_marks = {{"Last-Modified", "Wed, 18 Nov 2026 10:00:00 GMT"}};
  second_marks = {{"Last-Modified", "Thu, 19 Nov 2026 10:00:00 GMT"}};
  EXPECT_TRUE(resumed(300'000) == second);
  EXPECT_THAT(sent, testing::Contains("Wed, 18 Nov 2026 10:00:00 GMT"));
  // A weak ETag does not say that the bytes are the same.
  first_marks.push_back({"ETag", "W/\"v1\""}), second_marks.push_back({"ETag", "W/\"v1\""});
  EXPECT_TRUE(resumed(300'000) == second);
  EXPECT_THAT(sent, testing::Contains("Wed, 18 Nov 2026 10:00:00 GMT"));
}

TEST_F(FetchUrl, ETagThatLooksLikeAHashIsNotTrusted) {
  std::string header = "ETag";
  HttpServer server([&](const ServedRequest&) {
    return Reply{.headers = {{header, "\"" + std::string(64, 'a') + "\""}}, .body = all};
  });
  EXPECT_EQ(fetch_source(*parse_source(server.url() + "/m.gguf"), options()).files.at(0).sha256,
            sha256(std::as_bytes(std::span(all))));
  header = "X-Linked-Etag";  // that one is
  EXPECT_THROW(fetch_source(*parse_source(server.url() + "/n.gguf"), options()), Error);
}

TEST_F(FetchUrl, ACompleteFileOfUnknownSizeAnswers416) {
  bool first = true;
  HttpServer server([&](const ServedRequest& r) {
    if (r.method == "HEAD")
      return Reply{.headers = {{"ETag", "\"v1\""}, {"Transfer-Encoding", "chunked"}}, .content_length = false};
    if (r.range()) return Reply{.status = 416, .headers = {{"Content-Range", fmt::format("bytes */{}", all.size())}}};
    // All bytes come, and then the connection breaks before the end is told.
    std::string chunked = fmt::format("{:x}\r\n", all.size()) + all;
    first = false;
    return Reply{.headers = {{"Transfer-Encoding", "chunked"}}, .body = chunked, .content_length = false};
  });
  const Downloaded got = fetch_source(*parse_source(server.url() + "/m.gguf"), options());
  EXPECT_FALSE(first);
  EXPECT_EQ(read_text_file(got.files.at(0).local), all);
}

TEST_F(FetchUrl, RejectsUnsafeFileNames) {
  std::string name = "model.ckpt";
  HttpServer server([&](const ServedRequest&) {
    return Reply{.headers = {{"Content-Disposition", "attachment; filename=\"" + name + "\""}}, .body = "x"};
  });
  const Source source = *parse_source(server.url() + "/x.gguf");
  EXPECT_THROW(fetch_source(source, options()), Error);
  for (const char* bad : {"../x.gguf", "a/b.gguf", "..", "c:\\\\x.gguf"}) {
    name = bad;
    EXPECT_THROW(fetch_source(source, options()), Error) << bad;
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST_F(FetchUrl, RequestsOneByteIfHeadIsRejected) {
  HttpServer server([&](const ServedRequest& r) {
    if (r.method == "HEAD") return Reply{.status = 403};
    const auto range = r.range();
    if (!range) return Reply{.body = all};
    const uint64_t last = range->second.value_or(all.size() - 1);
    return Reply{.status = 206,
                 .headers = {{"Content-Range", fmt::format("bytes {}-{}/{}", range->first, last, all.size())}},
                 .body = all.substr(range->first, last - range->first + 1)};
  });
  EXPECT_EQ(fetch_source(*parse_source(server.url() + "/m.gguf"), options()).files.at(0).size, all.size());
  EXPECT_EQ(server.body_bytes_sent(), all.size() + 1);
}

}  // namespace
}  // namespace flux2
