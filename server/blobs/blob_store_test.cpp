// The folder and the S3 store keep the same promises. FLUX2_TEST_S3 names the address of a real S3-compatible server, in which
// case the tests of the S3 store use it (its keys are in the usual variables, its bucket is "images").
#include "server/blobs/blob_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "server/blobs/s3_blobs.h"
#include "server/store/test_folder.h"
#include "tests/support/fake_s3.h"

namespace flux2 {
namespace {

using test::FakeS3;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}
std::string text_of(const fs::path& path) { return read_text_file(path, {.bytes = 1 << 24}); }

class BlobStores : public testing::TestWithParam<bool> {
 protected:
  BlobStores() {
    if (!GetParam()) {
      store_ = open_folder_blobs(folder_ / "images");
      return;
    }
    S3Options options;
    if (std::getenv("FLUX2_TEST_S3")) {
      options.place =
          s3_place(fmt::format("s3://images/{}", unix_now()), [](const char* name) -> const char* { return std::getenv(name); });
    } else {
      fake_ = std::make_unique<FakeS3>();
      options.place = fake_->place();
      options.page = 100;
    }
    options.cache = folder_ / "cache";
    store_ = open_s3_blobs(options);
  }

  std::vector<Blob> all(const std::string& folder) {
    std::vector<Blob> blobs;
    store_->list(folder, [&](std::span<const Blob> page) { blobs.insert(blobs.end(), page.begin(), page.end()); });
    return blobs;
  }

  fs::path folder_ = server_test_folder();
  std::unique_ptr<FakeS3> fake_;
  std::unique_ptr<BlobStore> store_;
};

TEST_P(BlobStores, GiveBackWhatWasPut) {
  std::string bytes(300'000, 'x');
  bytes[7] = '\0', bytes[8] = '\n', bytes[9] = static_cast<char>(200);
  store_->put("generated/a.png", bytes_of(bytes), "image/png");
  EXPECT_TRUE(store_->exists("generated/a.png"));
  const auto path = store_->fetch("generated/a.png");
  ASSERT_TRUE(path);
  EXPECT_TRUE(text_of(*path) == bytes);
  EXPECT_EQ(path->extension(), ".png");
  fs::remove_all(folder_ / "cache" / "files");  // of the S3 store: it is fetched again
  fs::create_directories(folder_ / "cache" / "files");
  const auto again = store_->fetch("generated/a.png");
  ASSERT_TRUE(again);
  EXPECT_TRUE(text_of(*again) == bytes);
  store_->put("uploads/empty.png", {}, "image/png");
  fs::remove_all(folder_ / "cache" / "files");
  fs::create_directories(folder_ / "cache" / "files");
  ASSERT_TRUE(store_->fetch("uploads/empty.png"));
  EXPECT_EQ(text_of(*store_->fetch("uploads/empty.png")), "");
}

TEST_P(BlobStores, RemoveAndReportWhatIsMissing) {
  EXPECT_FALSE(store_->fetch("generated/a.png"));
  EXPECT_FALSE(store_->exists("generated/a.png"));
  store_->remove("generated/a.png");
  store_->put("generated/a.png", bytes_of("x"), "image/png");
  store_->remove("generated/a.png");
  EXPECT_FALSE(store_->exists("generated/a.png"));
  EXPECT_FALSE(store_->fetch("generated/a.png"));
}

TEST_P(BlobStores, ListFoldersOfAnySize) {
  const int count = std::getenv("FLUX2_TEST_S3") ? 1203 : 250;
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.insert(fmt::format("uploads/{}.png", i));
    store_->put(fmt::format("uploads/{}.png", i), bytes_of("12345"), "image/png");
  }
  store_->put("generated/other.png", bytes_of("x"), "image/png");
  const int64_t now = unix_now();
  std::set<std::string> listed;
  for (const Blob& blob : all("uploads")) {
    EXPECT_TRUE(listed.insert(blob.name).second) << blob.name << " is listed twice";
    EXPECT_EQ(blob.bytes, 5u);
    EXPECT_NEAR(static_cast<double>(blob.modified), static_cast<double>(now), 120'000);
  }
  EXPECT_EQ(listed, names);
  EXPECT_EQ(all("generated").size(), 1u);
  EXPECT_TRUE(all("thumbs").empty());
}

TEST_P(BlobStores, RefuseNamesThatLeaveTheirFolder) {
  for (const char* name : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "a b", "a?b", "a%2e", "./a"}) {
    EXPECT_THROW(store_->fetch(name), Error) << name;
    EXPECT_THROW(store_->put(name, bytes_of("x"), "image/png"), Error) << name;
    EXPECT_THROW(store_->remove(name), Error) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(FolderAndS3, BlobStores, testing::Bool(),
                         [](const auto& suite) { return std::string(suite.param ? "S3" : "Folder"); });

class S3Store : public testing::Test {
 protected:
  S3Options options(const std::string& address = "s3://images/some/place") {
    return {.place = fake_.place(address), .cache = folder_, .tries = 3, .first_pause = std::chrono::milliseconds(1)};
  }
  template <class F>
  std::string message_of(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "nothing was thrown";
  }

  fs::path folder_ = server_test_folder();
  FakeS3 fake_;
};

TEST_F(S3Store, SetsTypesAndSendsNoSecrets) {
  const auto store = open_s3_blobs(options());
  store->put("generated/a.webp", bytes_of("abc"), "image/webp");
  EXPECT_EQ(fake_.objects().at("some/place/generated/a.webp").type, "image/webp");
  S3Options temporary = options();
  temporary.place.signer.session_token = "a-session";
  open_s3_blobs(temporary)->put("generated/b.png", bytes_of("abc"), "image/png");
  EXPECT_EQ(fake_.server().requests().back().header("x-amz-security-token"), "a-session");
  EXPECT_THAT(fake_.server().requests().back().header("authorization"), HasSubstr("x-amz-security-token"));
  for (const auto& request : fake_.server().requests())
    for (const auto& [name, value] : request.headers) EXPECT_EQ(value.find("the-secret"), value.npos) << name;
}

TEST_F(S3Store, TriesAgainWhenTheStoreIsBusy) {
  const auto store = open_s3_blobs(options());
  fake_.fail_next(2, 503);
  store->put("generated/a.png", bytes_of("abc"), "image/png");
  fake_.fail_next(3, 503);
  const std::string said = message_of([&] { store->put("generated/b.png", bytes_of("abc"), "image/png"); });
  EXPECT_THAT(said, HasSubstr("s3://images/some/place/generated/b.png"));
  EXPECT_THAT(said, HasSubstr("503"));
  EXPECT_THAT(said, HasSubstr("AWS_ENDPOINT_URL"));
}

TEST_F(S3Store, SaysWhatToDoAboutErrors) {
  EXPECT_THAT(message_of([&] { open_s3_blobs(options("s3://other-bucket")); }), HasSubstr("bucket \"other-bucket\" not found"));
  S3Options wrong = options();
  wrong.place.signer.access_key = "another-key";
  const std::string refused = message_of([&] { open_s3_blobs(wrong); });
  EXPECT_THAT(refused, HasSubstr("AccessDenied"));
  EXPECT_THAT(refused, HasSubstr("check AWS_ACCESS_KEY_ID"));
  const auto store = open_s3_blobs(options());
  fake_.fail_next(1, 403);
  const std::string denied = message_of([&] { store->fetch("generated/x.png"); });
  EXPECT_THAT(denied, HasSubstr("s3://images/some/place/generated/x.png"));
  EXPECT_THAT(denied, HasSubstr("SignatureDoesNotMatch"));
  S3Options nowhere = options();
  nowhere.place.endpoint = "http://127.0.0.1:1";
  EXPECT_THAT(message_of([&] { open_s3_blobs(nowhere); }), HasSubstr("check the network"));
}

TEST_F(S3Store, CacheKeepsToItsBytes) {
  S3Options small = options();
  small.cache_bytes = 10'000;
  const auto store = open_s3_blobs(small);
  const std::string bytes(1000, 'x');
  const auto cached = [&] {
    size_t files = 0;
    for ([[maybe_unused]] const auto& file : fs::directory_iterator(folder_ / "files")) ++files;
    return files;
  };
  const auto age_all = [&] {  // as if they were used two minutes ago
    for (const auto& file : fs::directory_iterator(folder_ / "files"))
      fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  };
  for (int i = 0; i < 30; ++i) store->put(fmt::format("generated/{}.png", i), bytes_of(bytes), "image/png");
  EXPECT_EQ(cached(), 30u) << "files in use stay";
  age_all();
  ASSERT_TRUE(store->fetch("generated/3.png"));
  store->put("generated/30.png", bytes_of(bytes), "image/png");
  EXPECT_EQ(cached(), 10u);
  fake_.server().forget();
  EXPECT_TRUE(store->fetch("generated/3.png"));
  EXPECT_TRUE(fake_.server().requests().empty()) << "the file used last was removed";
  for (int i = 0; i < 31; ++i) EXPECT_EQ(text_of(*store->fetch(fmt::format("generated/{}.png", i))), bytes) << i;
  EXPECT_GE(fake_.server().requests().size(), 21u);
}

TEST(S3Place, ReadsTheUsualVariables) {
  std::map<std::string, std::string> variables = {{"AWS_ACCESS_KEY_ID", "k"}, {"AWS_SECRET_ACCESS_KEY", "s"}};
  const auto place = [&](const char* address) {
    return s3_place(address, [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(place("s3://bucket").url_of("a.png"), "https://bucket.s3.us-east-1.amazonaws.com/a.png");
  EXPECT_EQ(place("s3://a.bucket/x/y/").text(), "s3://a.bucket/x/y");
  EXPECT_EQ(place("s3://a.bucket/x/y/").prefix, "x/y/");
  EXPECT_EQ(place("s3://a.bucket/x").url_of("x/a.png"), "https://s3.us-east-1.amazonaws.com/a.bucket/x/a.png");
  variables["AWS_DEFAULT_REGION"] = "eu-west-1";
  EXPECT_EQ(place("s3://bucket").signer.region, "eu-west-1");
  variables["AWS_ENDPOINT_URL"] = "https://store.example:9000/";
  EXPECT_EQ(place("s3://bucket/p").url_of("p/a.png"), "https://store.example:9000/bucket/p/a.png");
  for (const char* address : {"s3://", "s3://ab", "s3://Bucket", "s3://-bucket", "s3://bu..cket", "s3://bucket/a//b",
                              "s3://bucket/../x", "s3://bucket/a b", "http://bucket"})
    EXPECT_THROW(place(address), Error) << address;
  variables["AWS_ENDPOINT_URL"] = "https://store.example/path";
  EXPECT_THROW(place("s3://bucket"), Error);
  variables = {};
  EXPECT_THROW(place("s3://bucket"), Error);
}

}  // namespace
}  // namespace flux2
