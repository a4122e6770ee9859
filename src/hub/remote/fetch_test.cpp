// Whole downloads against a hub and a storage on loopback.
#include "hub/remote/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/hub_client.h"
#include "hub/remote/partial_file.h"
#include "hub/remote/transfer.h"
#include "tests/support/fake_hub.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::FakeHub;
using test::random_bytes;
using test::Reply;
using test::ScratchFolder;
using test::ServedRequest;
using testing::HasSubstr;

std::string hash_of(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }

const Source kWhole{.repository = FakeHub::kRepository};

std::map<std::string, FakeHub::File> model_files(size_t large = 3 << 20) {
  return {{"model_index.json", {.content = "{}", .large = false}},
          {"model.safetensors", {.content = "the single file"}},
          {"transformer/diffusion_pytorch_model.safetensors", {.content = random_bytes(large, 1)}},
          {"transformer/config.json", {.content = "{\"a\": 1}", .large = false}},
          {"tokenizer/merges.txt", {.content = "", .large = false}},
          {"README.md", {.content = "read me", .large = false}},
          {"vae/model.bin", {.content = "a pickle"}}};
}

class Fetch : public testing::Test {
 protected:
  FetchOptions options(const FakeHub& hub) const {
    FetchOptions o;
    o.hub.endpoint = hub.endpoint();
    o.hub.token = "hf_secret";
    o.hub.cache = scratch.path() / "hub";
    o.hub.transfer_timeout_s = 5;
    o.retry.first_s = 0.01;
    return o;
  }
  HubCache cache() const { return HubCache(scratch.path() / "hub", FakeHub::kRepository); }
  static std::string content(const fs::path& path) { return read_text_file(path); }

  template <class F>
  static Error failure_of(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << "nothing was thrown";
    return Error(ErrorCode::Internal, "");
  }

  ScratchFolder scratch;
  std::vector<std::string> warnings;
  Log log{[this](LogLevel level, const std::string& text) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (level == LogLevel::Warning) warnings.push_back(text);
  }};
};

TEST_F(Fetch, DownloadsADiffusersFolderIntoTheSharedCache) {
  FakeHub hub(model_files());
  const Downloaded got = fetch_source(kWhole, options(hub), {}, log);
  EXPECT_EQ(got.commit, FakeHub::kCommit);
  EXPECT_EQ(got.licence, "apache-2.0");
  EXPECT_FALSE(got.gated);
  EXPECT_THAT(got.reason, HasSubstr("diffusers folder"));
  EXPECT_THAT(got.reason, HasSubstr("1 weight file that repeats it"));
  EXPECT_EQ(got.root, cache().snapshot(FakeHub::kCommit));
  std::set<std::string> paths;
  for (const FetchedFile& f : got.files) {
    paths.insert(f.path);
    EXPECT_EQ(content(f.local), hub.files.at(f.path).content) << f.path;
    EXPECT_EQ(f.sha256, hash_of(hub.files.at(f.path).content));
    EXPECT_FALSE(f.was_present);
  }
  EXPECT_EQ(paths, (std::set<std::string>{"model_index.json", "tokenizer/merges.txt", "transformer/config.json",
                                          "transformer/diffusion_pytorch_model.safetensors"}));

  const std::string large = hash_of(hub.files.at("transformer/diffusion_pytorch_model.safetensors").content);
  EXPECT_EQ(fs::read_symlink(got.root / "transformer/diffusion_pytorch_model.safetensors"), fs::path("../../../blobs") / large);
  EXPECT_EQ(fs::read_symlink(got.root / "model_index.json"), fs::path("../../blobs") / test::git_id("{}"));
  EXPECT_EQ(content(cache().folder() / "refs/main"), FakeHub::kCommit);
  EXPECT_THAT(content(scratch.path() / "hub/CACHEDIR.TAG"), HasSubstr("8a477f597d28d172789f06886806bc55"));
  for (const auto& entry : fs::directory_iterator(cache().folder() / "blobs"))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("incomplete")));
}

TEST_F(Fetch, SecondRunTransfersNothing) {
  FakeHub hub(model_files());
  fetch_source(kWhole, options(hub), {}, log);
  hub.hub().forget();
  hub.storage().forget();
  const Downloaded again = fetch_source(kWhole, options(hub), {}, log);
  for (const FetchedFile& f : again.files) EXPECT_TRUE(f.was_present) << f.path;
  EXPECT_TRUE(hub.storage().requests().empty());
  for (const ServedRequest& r : hub.hub().requests()) EXPECT_THAT(r.target, HasSubstr("/api/models/"));
}

TEST_F(Fetch, TheTokenReachesTheHubAndNeverTheStorage) {
  FakeHub hub(model_files());
  fetch_source(kWhole, options(hub), {}, log);
  for (const ServedRequest& r : hub.hub().requests()) EXPECT_EQ(r.header("authorization"), "Bearer hf_secret") << r.target;
  ASSERT_FALSE(hub.storage().requests().empty());
  for (const ServedRequest& r : hub.storage().requests()) EXPECT_EQ(r.header("authorization"), "") << r.target;
}

TEST_F(Fetch, LargeFilesAreDownloadedInParts) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(20 << 20, 2)}}});
  fetch_source(kWhole, options(hub), {}, log);
  std::set<std::string> ranges;
  for (const ServedRequest& r : hub.storage().requests()) ranges.insert(r.header("range"));
  EXPECT_EQ(ranges, (std::set<std::string>{"bytes=0-4194303", "bytes=4194304-8388607", "bytes=8388608-12582911",
                                           "bytes=12582912-16777215", "bytes=16777216-20971519"}));
  EXPECT_EQ(hub.storage().body_bytes_sent(), uint64_t{20 << 20});
}

TEST_F(Fetch, ResumesAfterDroppedConnections) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(12 << 20, 3)}}});
  std::atomic<int> drops = 0;
  hub.on_storage = [&](const ServedRequest& r) -> std::optional<Reply> {
    if (++drops > 6) return std::nullopt;
    const auto range = *r.range();
    const std::string& all = hub.files.at("m.safetensors").content;
    return Reply{.status = 206,
                 .headers = {{"Content-Range", fmt::format("bytes {}-{}/{}", range.first, *range.second, all.size())}},
                 .body = all.substr(range.first, *range.second - range.first + 1),
                 .drop_after = 100000};
  };
  FetchOptions o = options(hub);
  o.retry.tries = 2;  // in a row: each of these tries brings something
  const Downloaded got = fetch_source(kWhole, o, {}, log);
  EXPECT_EQ(content(got.files.at(0).local), hub.files.at("m.safetensors").content);
  // What had arrived before a drop was not asked for again.
  uint64_t asked_twice = 0;
  std::set<uint64_t> begins;
  for (const ServedRequest& r : hub.storage().requests()) asked_twice += !begins.insert(r.range()->first).second;
  EXPECT_EQ(asked_twice, 0u);
  EXPECT_EQ(warnings.size(), 6u);
}

TEST_F(Fetch, AServerWithoutRangesSendsTheWholeFile) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(12 << 20, 4)}}});
  hub.ranges = false;
  const Downloaded got = fetch_source(kWhole, options(hub), {}, log);
  EXPECT_EQ(content(got.files.at(0).local), hub.files.at("m.safetensors").content);
}

TEST_F(Fetch, AServerThatSendsTooMuchIsStopped) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(12 << 20, 14)}}});
  hub.on_storage = [&](const ServedRequest& r) -> std::optional<Reply> {
    const uint64_t first = r.range()->first;
    return Reply{.status = 206,
                 .headers = {{"Content-Range", fmt::format("bytes {}-{}/{}", first, (12 << 20) - 1, 12 << 20)}},
                 .body = std::string(64 << 20, 'x')};
  };
  const Error e = failure_of([&] { fetch_source(kWhole, options(hub), {}, log); });
  EXPECT_EQ(e.code(), ErrorCode::Network);
  EXPECT_THAT(e.what(), HasSubstr("more bytes than requested"));

  fs::remove_all(scratch.path() / "hub");  // some parts may have come whole, of wrong bytes
  // The bytes of another place than was asked for.
  hub.on_storage = [&](const ServedRequest&) {
    return Reply{.status = 206, .headers = {{"Content-Range", "bytes 5-9/12582912"}}, .body = "12345"};
  };
  EXPECT_THAT(failure_of([&] { fetch_source(kWhole, options(hub), {}, log); }).what(), HasSubstr("the server sent bytes from 5"));
  // A file of another size than the listing said.
  hub.on_storage = [&](const ServedRequest& r) {
    return Reply{.status = 206,
                 .headers = {{"Content-Range", fmt::format("bytes {}-{}/99", r.range()->first, r.range()->first)}},
                 .body = "1"};
  };
  EXPECT_EQ(failure_of([&] { fetch_source(kWhole, options(hub), {}, log); }).code(), ErrorCode::BadFile);
  // And one that knows nothing of the range.
  hub.on_storage = [&](const ServedRequest&) { return Reply{.status = 416, .headers = {{"Content-Range", "bytes */3"}}}; };
  EXPECT_THAT(failure_of([&] { fetch_source(kWhole, options(hub), {}, log); }).what(), HasSubstr("reports different sizes"));
}

TEST_F(Fetch, AnExpiredSignatureIsRenewedOnce) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(12 << 20, 5)}}});
  hub.oldest_signature = 2;
  const Downloaded got = fetch_source(kWhole, options(hub), {}, log);
  EXPECT_EQ(content(got.files.at(0).local), hub.files.at("m.safetensors").content);
  int heads = 0;
  for (const ServedRequest& r : hub.hub().requests()) heads += r.method == "HEAD";
  EXPECT_EQ(heads, 2);  // by one of the parts, for all of them

  FakeHub closed({{"m.safetensors", {.content = "abc"}}});
  closed.oldest_signature = 1000;
  const Error e = failure_of(
      [&] { fetch_source({.repository = FakeHub::kRepository, .paths = {"m.safetensors"}}, options(closed), {}, log); });
  EXPECT_EQ(e.code(), ErrorCode::Network);
  EXPECT_THAT(e.what(), HasSubstr("403"));
}

TEST_F(Fetch, RespectsRetryAfter) {
  FakeHub hub({{"m.safetensors", {.content = "abc"}}});
  std::atomic<int> asked = 0;
  hub.on_hub = [&](const ServedRequest&) -> std::optional<Reply> {
    if (++asked == 1) return Reply{.status = 429, .headers = {{"Retry-After", "1"}}};
    if (asked == 2) return Reply{.status = 503};
    return std::nullopt;
  };
  const auto start = std::chrono::steady_clock::now();
  fetch_source(kWhole, options(hub), {}, log);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], HasSubstr("the server answers 429; trying again in 1 s"));
}

TEST_F(Fetch, GivesUpOnAServerThatKeepsFailing) {
  FakeHub hub({{"m.safetensors", {.content = "abc"}}});
  hub.on_storage = [](const ServedRequest&) { return Reply{.status = 502}; };
  const Error e = failure_of([&] { fetch_source(kWhole, options(hub), {}, log); });
  EXPECT_EQ(e.code(), ErrorCode::Network);
  EXPECT_THAT(e.what(), HasSubstr("502, 8 times in a row"));
  EXPECT_EQ(hub.storage().requests().size(), 8u);
}

TEST_F(Fetch, WrongBytesAreDeletedAndReported) {
  FakeHub hub({{"m.safetensors", {.content = "abc", .etag = std::string(64, 'a')}}});
  Error e = failure_of([&] { fetch_source(kWhole, options(hub), {}, log); });
  EXPECT_EQ(e.code(), ErrorCode::BadFile);
  EXPECT_THAT(e.what(), HasSubstr("its SHA-256 is ba7816bf"));
  EXPECT_TRUE(fs::is_empty(cache().folder() / "blobs"));
  EXPECT_FALSE(fs::exists(cache().snapshot(FakeHub::kCommit) / "m.safetensors"));

  FakeHub small(
      {{"config.json", {.content = "{}", .large = false, .etag = std::string(40, 'b')}}, {"m.safetensors", {.content = "abc"}}});
  e = failure_of([&] { fetch_source(kWhole, options(small), {}, log); });
  EXPECT_EQ(e.code(), ErrorCode::BadFile);
  EXPECT_THAT(e.what(), HasSubstr("its git id is " + test::git_id("{}")));
}

TEST_F(Fetch, GatedFilesAreExplained) {
  FakeHub hub({{"m.safetensors", {.content = "abc"}}});
  hub.gated = "\"auto\"";
  hub.on_hub = [](const ServedRequest& r) -> std::optional<Reply> {
    if (r.target.find("/resolve/") == std::string::npos) return std::nullopt;  // the listing is public
    return Reply{
        .status = r.header("authorization").empty() ? 401 : 403,
        .headers = {{"X-Error-Code", "GatedRepo"}, {"X-Error-Message", "Access to model owner/model is restricted, hf_secret."}}};
  };
  FetchOptions o = options(hub);
  Error e = failure_of([&] { fetch_source(kWhole, o, {}, log); });
  EXPECT_EQ(e.code(), ErrorCode::Network);
  EXPECT_THAT(e.what(), HasSubstr("owner/model is gated and the account of this token has no access"));
  EXPECT_THAT(e.what(), Not(HasSubstr("hf_secret")));
  EXPECT_THAT(e.hint().plain(), HasSubstr(hub.endpoint() + "/owner/model"));
  o.hub.token.clear();
  e = failure_of([&] { fetch_source(kWhole, o, {}, log); });
  EXPECT_THAT(e.what(), HasSubstr("its licence has to be accepted first"));
  EXPECT_THAT(e.hint().plain(), HasSubstr("HF_TOKEN"));

  hub.on_hub = {};
  fetch_source(kWhole, o, {}, log);  // accepted meanwhile
  hub.on_hub = [](const ServedRequest&) { return Reply{.status = 401, .headers = {{"X-Error-Code", "GatedRepo"}}}; };
  EXPECT_TRUE(fetch_source(kWhole, o, {}, log).files.at(0).was_present);  // what is here stays usable
  EXPECT_THAT(warnings.back(), HasSubstr("using the cached files"));
}

TEST_F(Fetch, ReportsMissingFiles) {
  FakeHub hub(model_files());
  const Source revision{.repository = FakeHub::kRepository, .revision = "nope"}, repository{.repository = "owner/nope"};
  EXPECT_THAT(failure_of([&] { fetch_source(revision, options(hub), {}, log); }).what(),
              HasSubstr("owner/model has no revision nope"));
  EXPECT_THAT(failure_of([&] { fetch_source(repository, options(hub), {}, log); }).what(),
              HasSubstr("owner/nope is not known to"));
  const Source file{.repository = FakeHub::kRepository, .paths = {"transformer/config.json"}};
  hub.on_hub = [](const ServedRequest& r) -> std::optional<Reply> {  // listed, but not there
    if (r.target.find("/resolve/") == std::string::npos) return std::nullopt;
    return Reply{.status = 404, .headers = {{"X-Error-Code", "EntryNotFound"}, {"X-Repo-Commit", FakeHub::kCommit}}};
  };
  EXPECT_EQ(failure_of([&] { fetch_source(file, options(hub), {}, log); }).code(), ErrorCode::NotFound);
  EXPECT_TRUE(cache().is_known_absent(FakeHub::kCommit, "transformer/config.json"));
  FetchOptions offline = options(hub);
  offline.hub.offline = true;
  cache().write_ref("main", FakeHub::kCommit);
  EXPECT_THAT(failure_of([&] { fetch_source(file, offline, {}, log); }).what(), HasSubstr("owner/model has no file"));
}

TEST_F(Fetch, AtMostTwoFilesAndFourPartsAtATime) {
  FakeHub hub({{"a/model-00001-of-00003.safetensors", {.content = random_bytes(9 << 20, 21)}},
               {"a/model-00002-of-00003.safetensors", {.content = random_bytes(9 << 20, 22)}},
               {"a/model-00003-of-00003.safetensors", {.content = random_bytes(9 << 20, 23)}}});
  std::atomic<int> now = 0, most = 0;
  std::mutex mutex;
  std::map<std::string, int> files;
  size_t most_files = 0;
  hub.on_storage = [&](const ServedRequest& r) -> std::optional<Reply> {
    const std::string name = r.target.substr(0, r.target.find('?'));
    {
      const std::lock_guard lock(mutex);
      ++files[name];
      most_files = std::max(most_files, files.size());
    }
    most = std::max(most.load(), ++now);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    --now;
    const std::lock_guard lock(mutex);
    if (--files[name] == 0) files.erase(name);
    return std::nullopt;
  };
  fetch_source(kWhole, options(hub), {}, log);
  EXPECT_GE(most, 2);
  EXPECT_LE(most, 8);
  EXPECT_LE(most_files, 2u);
}

TEST_F(Fetch, PagesOfTheListingAreReadToTheEnd) {
  std::map<std::string, FakeHub::File> files;
  for (int i = 1; i <= 7; ++i)
    files[fmt::format("model-{:05}-of-00007.safetensors", i)] = {.content = fmt::format("shard {}", i)};
  FakeHub hub(files);
  hub.page_size = 3;
  EXPECT_EQ(fetch_source(kWhole, options(hub), {}, log).files.size(), 7u);
}

TEST_F(Fetch, FallsBackToTheListingWithoutHeaders) {
  FakeHub hub({{"m.safetensors", {.content = "abc"}}});
  hub.tells_headers = false;
  const Downloaded got = fetch_source(kWhole, options(hub), {}, log);
  EXPECT_TRUE(fs::exists(cache().blob(hash_of("abc"))));
  EXPECT_EQ(content(got.files.at(0).local), "abc");
}

TEST_F(Fetch, WithoutHashesOnlyAPlainFolderIsPossible) {
  FakeHub hub({{"m.safetensors", {.content = "abc"}}});
  hub.tells_headers = false;
  hub.on_hub = [](const ServedRequest& r) -> std::optional<Reply> {
    return r.target.starts_with("/api/") ? std::optional(Reply{.status = 404}) : std::nullopt;
  };
  const Source named{.repository = FakeHub::kRepository, .paths = {"m.safetensors"}};
  FetchOptions o = options(hub);
  const Error e = failure_of([&] { fetch_source(named, o, {}, log); });
  EXPECT_THAT(e.what(), HasSubstr("cannot be stored in the shared cache"));
  EXPECT_THAT(e.hint().plain(), HasSubstr("local_dir"));
  o.local_dir = scratch.path() / "plain";
  EXPECT_EQ(content(fetch_source(named, o, {}, log).files.at(0).local), "abc");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(scratch.path() / "plain/m.safetensors")));
}

TEST_F(Fetch, RejectsUnsafePaths) {
  for (const char* path : {"../../evil.json", "/etc/evil.json", "a\\b.json", "a/../../b.json"}) {
    FakeHub hub({{path, {.content = "abc"}}, {"m.safetensors", {.content = "abc"}}});
    const Error e = failure_of([&] { fetch_source(kWhole, options(hub), {}, log); });
    EXPECT_THAT(e.what(), HasSubstr("not safe to write")) << path;
  }
}

TEST_F(Fetch, ChecksSpaceBeforeDownloading) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(100 << 10, 6)}}});
  FetchOptions o = options(hub);
  o.free_space = [](const fs::path&) { return uint64_t{109 << 10}; };
  const Error e = failure_of([&] { fetch_source(kWhole, o, {}, log); });
  EXPECT_EQ(e.code(), ErrorCode::CannotWrite);
  EXPECT_THAT(e.what(), HasSubstr("100 KiB are missing and need 110 KiB with a reserve of ten per cent"));
  EXPECT_THAT(e.what(), HasSubstr("has 109 KiB free"));
  EXPECT_TRUE(hub.storage().requests().empty());
  o.free_space = [](const fs::path&) { return uint64_t{111 << 10}; };
  fetch_source(kWhole, o, {}, log);
}

TEST_F(Fetch, UsesOnlyTheCacheOffline) {
  FakeHub hub(model_files());
  FetchOptions o = options(hub);
  o.hub.offline = true;
  EXPECT_EQ(failure_of([&] { fetch_source(kWhole, o, {}, log); }).code(), ErrorCode::NotFound);
  EXPECT_TRUE(hub.hub().requests().empty());
  o.hub.offline = false;
  fetch_source(kWhole, o, {}, log);
  hub.hub().forget();
  o.hub.offline = true;
  const Downloaded got = fetch_source(kWhole, o, {}, log);
  EXPECT_EQ(got.files.size(), 4u);
  for (const FetchedFile& f : got.files) EXPECT_EQ(f.sha256, hash_of(hub.files.at(f.path).content));
  EXPECT_EQ(fetch_source({.repository = FakeHub::kRepository, .revision = FakeHub::kCommit}, o, {}, log).files.size(), 4u);
  EXPECT_THROW(fetch_source({.repository = FakeHub::kRepository, .revision = "other"}, o, {}, log), Error);
  EXPECT_TRUE(hub.hub().requests().empty());
}

TEST_F(Fetch, FallsBackToTheCacheIfTheHubIsDown) {
  FetchOptions o;
  {
    FakeHub hub(model_files());
    o = options(hub);
    fetch_source(kWhole, o, {}, log);
  }
  EXPECT_EQ(fetch_source(kWhole, o, {}, log).files.size(), 4u);
  EXPECT_THAT(warnings.back(), HasSubstr("using the cached files"));
  EXPECT_EQ(failure_of([&] { fetch_source({.repository = "owner/other"}, o, {}, log); }).code(), ErrorCode::Network);
}

TEST_F(Fetch, StoresFilesInTheSnapshotWithoutSymlinks) {
  FakeHub hub(model_files());
  FetchOptions o = options(hub);
  o.hub.symlinks = false;
  const Downloaded got = fetch_source(kWhole, o, {}, log);
  for (const FetchedFile& f : got.files) EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(f.local))) << f.path;
  EXPECT_TRUE(fs::is_empty(cache().folder() / "blobs"));
  hub.storage().forget();
  fetch_source(kWhole, o, {}, log);
  EXPECT_TRUE(hub.storage().requests().empty());
}

TEST_F(Fetch, ContinuesAPartialFileOfAnotherProgram) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(1 << 20, 7)}}});
  const std::string& all = hub.files.at("m.safetensors").content;
  const std::string etag = hash_of(all);
  cache().prepare();
  const fs::path fresh = cache().blob(etag + ".incomplete");
  std::ofstream(fresh) << all.substr(0, 700000);
  fs::last_write_time(fresh, fs::file_time_type::clock::now() - std::chrono::hours(25));
  fetch_source(kWhole, options(hub), {}, log);
  EXPECT_EQ(hub.storage().body_bytes_sent(), all.size() - 700000);
  EXPECT_FALSE(fs::exists(fresh));
}

TEST_F(Fetch, ProgressAddsUp) {
  FakeHub hub(model_files());
  hub.storage_bytes_per_s = 4 << 20;
  std::vector<FetchStatus> told;
  const auto start = std::chrono::steady_clock::now();
  fetch_source(
      kWhole, options(hub), [&](const FetchStatus& s) { told.push_back(s); }, log);
  ASSERT_GE(told.size(), 2u);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LE(static_cast<double>(told.size()), 4 * seconds + 2);  // four a second, and the end
  for (size_t i = 1; i < told.size(); ++i) EXPECT_GE(told[i].bytes, told[i - 1].bytes);
  EXPECT_EQ(told.back().bytes, told.back().total);
  EXPECT_EQ(told.back().total, (3u << 20) + 2 + 8);
  EXPECT_EQ(told.back().files_done, 4);
  EXPECT_GT(told.back().bytes_per_s, 0);
}

TEST_F(Fetch, CanBeCancelledAndContinued) {
  FakeHub hub({{"m.safetensors", {.content = random_bytes(8 << 20, 8)}}});
  hub.storage_bytes_per_s = 8 << 20;
  FetchOptions o = options(hub);
  o.cancelled = [&] { return hub.storage().body_bytes_sent() > (4 << 20); };
  EXPECT_EQ(failure_of([&] { fetch_source(kWhole, o, {}, log); }).code(), ErrorCode::Cancelled);
  o.cancelled = {};
  hub.storage_bytes_per_s = 0;
  hub.storage().forget();
  const std::string etag = hash_of(hub.files.at("m.safetensors").content);
  const uint64_t had = PartialFile(cache().partial(etag), etag, 8 << 20, segment_size(8 << 20)).have();
  EXPECT_GT(had, uint64_t{3 << 20});
  const Downloaded got = fetch_source(kWhole, o, {}, log);
  EXPECT_EQ(content(got.files.at(0).local), hub.files.at("m.safetensors").content);
  ASSERT_EQ(hub.storage().requests().size(), 1u);
  EXPECT_EQ(hub.storage().requests()[0].header("range"), fmt::format("bytes={}-{}", had, (8 << 20) - 1));
}

// The hub knows the token and may put it wherever it likes.
TEST_F(Fetch, ShowsNoTokenThatTheHubRepeats) {
  const std::string secret = "hf_secret";
  const Reply file_with_it{.headers = {{"X-Repo-Commit", FakeHub::kCommit}},
                           .body = R"([{"type":"file","path":"hf_\u0073ecret.safetensors","oid":"a","size":1}])"};
  const std::pair<std::string, Reply> answers[] = {
      {"a name", file_with_it},
      {"an unsafe name", {.body = R"([{"type":"file","path":"../hf_secret","oid":"a","size":1}])"}},
      {"the next page", {.headers = {{"Link", "<https://elsewhere.example/hf_secret>; rel=\"next\""}}, .body = "[]"}},
      {"a redirect", {.status = 302, .headers = {{"Location", "/hf_secret"}}}},
      {"a host that does not exist", {.status = 302, .headers = {{"Location", "http://hf_secret.invalid/"}}}},
      {"an error", {.status = 418, .headers = {{"X-Error-Message", "hf_secret"}}}},
      {"an error in JSON", {.status = 400, .body = R"({"error":"hf_\u0073ecret"})"}},
      {"an error that passes", {.status = 503, .headers = {{"X-Error-Message", "hf_secret"}}, .body = secret}},
      {"a twofold key", {.body = R"({"hf_secret":1,"hf_secret":2})"}},
      {"no JSON", {.body = secret}}};
  for (const auto& [what, answer] : answers) {
    FakeHub hub(model_files());
    hub.on_hub = [&answer](const ServedRequest&) { return answer; };
    FetchOptions o = options(hub);
    o.retry.tries = 2;
    for (const bool api : {true, false}) {
      const HttpClient http;
      const HubClient client(http, o.hub, {.retry = o.retry, .cancelled = {}, .log = log});
      const Error e = failure_of([&] {
        if (api) client.list(FakeHub::kRepository, "main");
        else fetch_source(kWhole, o, {}, log);
      });
      EXPECT_EQ((e.what() + e.hint().plain()).find(secret), std::string::npos) << what << ": " << e.what();
    }
  }
  for (const std::string& line : warnings) EXPECT_EQ(line.find(secret), std::string::npos) << line;
}

TEST_F(Fetch, HidesTheTokenInTheLicence) {
  FakeHub hub(model_files());
  hub.on_hub = [&](const ServedRequest& request) -> std::optional<Reply> {
    if (request.target.find("/revision/") == std::string::npos) return std::nullopt;
    return Reply{.body = std::string(R"({"sha":")") + FakeHub::kCommit + R"(","cardData":{"license":"hf_\u0073ecret"}})"};
  };
  const HttpClient http;
  EXPECT_EQ(HubClient(http, options(hub).hub, {}).info(FakeHub::kRepository, "main").licence, "(token)");
}

}  // namespace
}  // namespace flux2
