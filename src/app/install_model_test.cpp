// Installing from plain addresses, from a server on loopback.
#include "app/install_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "app/model_lists.h"
#include "app/registry_access.h"
#include "base/json.h"
#include "base/sha256.h"
#include "hub/remote/partial_file.h"
#include "hub/remote/transfer.h"
#include "tests/support/fake_hub.h"
#include "tests/support/http_server.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::Reply;
using test::ServedRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class InstallFromAddress : public testing::Test {
 protected:
  InstallFromAddress() : home_(scratch_.path().string()) {
    context_.environment = [this](const char* name) -> const char* {
      return std::string_view(name) == "FLUX2_HOME" ? home_.c_str() : nullptr;  // HOME is not set, as in some containers
    };
    hooks_.note = [this](const std::string& text) { notes_.push_back(text); };
  }

  Reply answer(const ServedRequest& r) const {
    const uint64_t size = body_.size();
    const auto range = r.range();
    Reply reply{.headers = {{"ETag", etag_}}, .body = body_, .bytes_per_s = bytes_per_s_};
    if (range) {
      const uint64_t last = range->second.value_or(size - 1);
      reply.status = 206;
      reply.headers.push_back({"Content-Range", fmt::format("bytes {}-{}/{}", range->first, last, size)});
      reply.body = body_.substr(range->first, last - range->first + 1);
    }
    if (broken_ && r.method == "GET") reply.drop_after = 1 << 20;
    return reply;
  }

  std::vector<ModelRecord> install(const std::string& name = "x.safetensors", InstallRequest request = {}) {
    request.source = server_.url() + "/" + name;
    return install_model(context_, request, hooks_);
  }
  // Begins a download and loses the connection.
  void break_off(const std::string& name = "x.safetensors") {
    server_.forget();
    broken_ = true;
    // One question, a request for each of three parts, and the second one for the part that noticed it first.
    hooks_.cancelled = [&] { return server_.requests().size() > 4; };
    EXPECT_THROW(install(name), Error);
    hooks_.cancelled = {};
    broken_ = false;
    server_.forget();
  }
  static std::string hash_of(const std::string& bytes) { return sha256(std::as_bytes(std::span(bytes))); }
  fs::path vae(const char* name) const { return scratch_.path() / "models/vae" / name; }
  fs::path incoming() const { return scratch_.path() / "models/.incoming"; }

  test::ScratchFolder scratch_;
  std::string home_;
  AppContext context_;
  InstallHooks hooks_;
  std::vector<std::string> notes_;
  std::string etag_ = "\"v1\"", body_ = read_text_file(fs::path(test::pico_folder()) / "ae.safetensors", {.bytes = 64 << 20});
  std::atomic<bool> broken_ = false;
  double bytes_per_s_ = 0;
  test::HttpServer server_{[this](const ServedRequest& r) { return answer(r); }};
};

TEST_F(InstallFromAddress, WhatIsInstalledIsDownloadedOnlyIfItHasChanged) {
  const auto first = install();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].path, vae("x.safetensors"));
  EXPECT_EQ(first[0].sha256, hash_of(body_));
  EXPECT_THAT(first[0].source.revision, HasSubstr("v1"));
  EXPECT_TRUE(fs::is_empty(incoming()));

  server_.forget();
  const auto again = install();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].key, first[0].key);
  EXPECT_EQ(server_.body_bytes_sent(), 0u);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("already installed: " + first[0].name)));
  EXPECT_EQ(install("x.safetensors", {.name = "mine"})[0].name, "mine") << "it gets the name that is asked for";
  EXPECT_EQ(install("x.safetensors", {.offline = true})[0].name, "mine");
  EXPECT_EQ(server_.body_bytes_sent(), 0u);

  body_.back() = static_cast<char>(body_.back() ^ 1);  // of the same size
  etag_ = "\"v2\"";
  const auto changed = install();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].key, first[0].key);
  EXPECT_EQ(changed[0].name, "mine");
  EXPECT_EQ(changed[0].path, first[0].path) << "the new file replaces the old one";
  EXPECT_EQ(changed[0].sha256, hash_of(body_));
  EXPECT_EQ(open_registry(context_).all().size(), 1u);
  server_.forget();
  install();
  EXPECT_EQ(server_.body_bytes_sent(), 0u);

  fs::resize_file(first[0].path, 1000);
  EXPECT_EQ(install()[0].sha256, hash_of(body_)) << "damaged files are downloaded again";
  fs::remove(first[0].path);
  EXPECT_EQ(install()[0].path, first[0].path);
}

TEST_F(InstallFromAddress, FilesOfOneNameFromTwoAddressesDoNotMeet) {
  break_off("a/x.safetensors");
  const auto other = install("b/x.safetensors");
  EXPECT_EQ(other[0].path, vae("x.safetensors"));
  server_.forget();
  const auto first = install("a/x.safetensors");
  EXPECT_EQ(first[0].path, vae("x-2.safetensors"));
  EXPECT_LT(server_.body_bytes_sent(), body_.size()) << "it continued";
  EXPECT_TRUE(fs::is_empty(incoming()));
}

TEST_F(InstallFromAddress, InterruptedDownloadsAreListed) {
  break_off();
  const auto found = orphans(context_);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path.filename(), "x.safetensors.part");
  EXPECT_EQ(found[0].state, "incomplete");
  EXPECT_GT(found[0].bytes, 0u);
  ASSERT_EQ(deletable_orphans(context_).size(), 1u);
  EXPECT_TRUE(deletable_orphans(context_)[0].is_partial);
  install();
  EXPECT_THAT(orphans(context_), IsEmpty());
}

// They had one folder for all addresses.
TEST_F(InstallFromAddress, WhatAnOlderVersionBeganIsContinued) {
  const fs::path older = incoming() / "x.safetensors.part";
  fs::create_directories(incoming());
  {
    PartialFile begun(older, "ETag " + etag_, body_.size(), segment_size(body_.size()));
    begun.append(0, std::as_bytes(std::span(body_)).first(3 << 20));
  }
  EXPECT_EQ(orphans(context_).at(0).path, older);
  EXPECT_EQ(install()[0].sha256, hash_of(body_));
  EXPECT_EQ(server_.body_bytes_sent(), body_.size() - (3 << 20));
  EXPECT_TRUE(fs::is_empty(incoming()));
}

TEST_F(InstallFromAddress, AWholeFileOfAnotherRevisionIsNotTaken) {
  install();
  const fs::path folder = incoming() / ("x.safetensors-" + hash_of(server_.url() + "/x.safetensors").substr(0, 8));
  fs::create_directories(folder);
  fs::rename(vae("x.safetensors"), folder / "x.safetensors");  // as a process leaves it that is killed before it moves the file
  std::ofstream(folder / "revision") << "ETag \"v0\", 5 bytes";
  body_.back() = static_cast<char>(body_.back() ^ 1);
  EXPECT_EQ(install()[0].sha256, hash_of(body_));
}

TEST_F(InstallFromAddress, TwoAtOnceDownloadOnce) {
  bytes_per_s_ = 1e7;
  std::vector<std::string> keys(2);
  {
    std::vector<std::jthread> threads;
    threads.reserve(keys.size());
    for (std::string& key : keys)
      threads.emplace_back([&] { key = install_model(context_, {.source = server_.url() + "/x.safetensors"}).at(0).key; });
  }
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(server_.body_bytes_sent(), body_.size());
  EXPECT_EQ(open_registry(context_).all().size(), 1u);
}

// A folder for models may be a link to a larger disk.
TEST_F(InstallFromAddress, AFolderOnAnotherDisk) {
  const fs::path disk = fs::path("/dev/shm") / scratch_.path().filename();
  std::error_code failure;
  if (!fs::create_directories(disk, failure)) GTEST_SKIP() << "a folder in /dev/shm cannot be created";
  fs::create_directories(scratch_.path() / "models");
  fs::create_directory_symlink(disk, scratch_.path() / "models/vae");
  const auto first = install();
  EXPECT_EQ(first.at(0).sha256, hash_of(body_));
  EXPECT_TRUE(fs::exists(disk / "x.safetensors"));
  body_.back() = static_cast<char>(body_.back() ^ 1);
  etag_ = "\"v2\"";
  EXPECT_EQ(install().at(0).key, first[0].key);
  EXPECT_EQ(open_registry(context_).all().at(0).sha256, hash_of(body_));
  EXPECT_TRUE(fs::is_empty(incoming()));
  fs::remove_all(disk);
}

}  // namespace
}  // namespace flux2
