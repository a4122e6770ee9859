#include "server/store/key_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

class KeyStoreTest : public ::testing::Test {
 protected:
  std::filesystem::path file_ = server_test_folder() / "flux2.db";
  KeyStore keys_{file_};
};

TEST_F(KeyStoreTest, AddsListsAndRevokes) {
  EXPECT_TRUE(keys_.list().empty());
  const auto first = keys_.add("laptop", "generate"), second = keys_.add("admin", "admin");
  EXPECT_TRUE(first.secret.starts_with("flux2_"));
  EXPECT_NE(first.secret, second.secret);

  const auto known = KeyStore(file_).list();
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].id, first.key.id);
  EXPECT_EQ(known[0].name, "laptop");
  EXPECT_EQ(known[0].scope, "generate");
  EXPECT_EQ(known[0].sha256, sha256(std::as_bytes(std::span(first.secret))));
  EXPECT_EQ(known[1].name, "admin");
  EXPECT_TRUE(keys_.revoke(first.key.id));
  EXPECT_FALSE(keys_.revoke(first.key.id));
  ASSERT_EQ(keys_.list().size(), 1u);
}

TEST_F(KeyStoreTest, RefusesUnknownScopesAndEmptyNames) {
  EXPECT_THROW(keys_.add("a", "root"), Error);
  EXPECT_THROW(keys_.add("", "admin"), Error);
  EXPECT_THROW(keys_.add_session({"hash", "", "", 1}), Error);
}

TEST_F(KeyStoreTest, SessionsEndAfterThirtyDays) {
  const int64_t start = 1'000'000;
  keys_.add_session({"one", "", "admin", start});
  keys_.add_session({"two", "", "generate", start + 1});
  EXPECT_EQ(KeyStore(file_).sessions().size(), 2u);
  keys_.prune(start + kSessionMs);
  ASSERT_EQ(keys_.sessions().size(), 1u);
  EXPECT_EQ(keys_.sessions()[0].sha256, "two");
  EXPECT_EQ(keys_.sessions()[0].scope, "generate");
  keys_.remove_session("two");
  EXPECT_TRUE(keys_.sessions().empty());
}

TEST_F(KeyStoreTest, RevokingAKeyEndsItsSessions) {
  const auto key = keys_.add("page", "admin"), other = keys_.add("other", "admin");
  keys_.add_session({"one", key.key.sha256, "admin", 5});
  keys_.add_session({"two", other.key.sha256, "admin", 5});
  keys_.revoke(key.key.id);
  ASSERT_EQ(keys_.sessions().size(), 1u);
  EXPECT_EQ(keys_.sessions()[0].sha256, "two");
}

TEST_F(KeyStoreTest, KeepsNoSecretInTheFile) {
  const auto key = keys_.add("page", "admin");
  for (const char* suffix : {"", "-wal"}) {
    std::ifstream file(file_.string() + suffix, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(content.find(key.secret), content.npos);
  }
}

TEST_F(KeyStoreTest, KeepsLimits) {
  keys_.add("guest", "generate", {.rate = 60, .queue = 2, .work = 500});
  keys_.add("laptop", "generate");
  const auto known = KeyStore(file_).list();
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].rate, 60);
  EXPECT_EQ(known[0].queue, 2);
  EXPECT_EQ(known[0].work, 500);
  EXPECT_EQ(known[1].rate, 0);
  EXPECT_THROW(keys_.add("x", "generate", {.rate = -1}), Error);
}

}  // namespace
}  // namespace flux2
