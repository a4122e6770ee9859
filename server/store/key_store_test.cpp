#include "server/store/key_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

class KeyStoreTest : public ::testing::Test {
 protected:
  std::filesystem::path file_ = server_test_folder() / "flux2.db";
  KeyStore keys_{file_};
};

TEST_F(KeyStoreTest, AddsFindsListsAndRevokes) {
  EXPECT_TRUE(keys_.empty());
  const auto first = keys_.add("laptop", "generate"), second = keys_.add("admin", "admin");
  EXPECT_FALSE(keys_.empty());
  EXPECT_TRUE(first.secret.starts_with("flux2_"));
  EXPECT_NE(first.secret, second.secret);

  const auto found = KeyStore(file_).find(first.secret, 1000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id, first.key.id);
  EXPECT_EQ(found->name, "laptop");
  EXPECT_EQ(found->scope, "generate");
  EXPECT_FALSE(keys_.find("flux2_wrong", 1000));
  EXPECT_FALSE(keys_.find("", 1000));

  ASSERT_EQ(keys_.list().size(), 2u);
  EXPECT_EQ(keys_.list()[1].name, "admin");
  EXPECT_TRUE(keys_.revoke(first.key.id));
  EXPECT_FALSE(keys_.revoke(first.key.id));
  EXPECT_FALSE(keys_.find(first.secret, 1000));
  EXPECT_TRUE(keys_.find(second.secret, 1000));
}

TEST_F(KeyStoreTest, NotesTheLastUseOnceAMinute) {
  const auto added = keys_.add("a", "manage");
  keys_.find(added.secret, 1'000'000);
  EXPECT_EQ(keys_.list()[0].used, 1'000'000);
  keys_.find(added.secret, 1'059'999);
  EXPECT_EQ(keys_.list()[0].used, 1'000'000);
  keys_.find(added.secret, 1'060'000);
  EXPECT_EQ(keys_.list()[0].used, 1'060'000);
}

TEST_F(KeyStoreTest, RefusesUnknownScopesAndEmptyNames) {
  EXPECT_THROW(keys_.add("a", "root"), Error);
  EXPECT_THROW(keys_.add("", "admin"), Error);
  EXPECT_THROW(keys_.begin_session("", "", 1), Error);
}

TEST_F(KeyStoreTest, SessionsEndAfterThirtyDays) {
  const int64_t start = 1'000'000;
  const std::string cookie = keys_.begin_session("", "admin", start);
  EXPECT_EQ(cookie.size(), 43u);
  ASSERT_TRUE(keys_.session(cookie, start + kSessionMs - 1));
  EXPECT_EQ(keys_.session(cookie, start + kSessionMs - 1)->scope, "admin");
  EXPECT_EQ(keys_.session(cookie, start + kSessionMs - 1)->seen, start + kSessionMs - 1);
  EXPECT_FALSE(keys_.session(cookie, start + kSessionMs));
  EXPECT_FALSE(keys_.session("other", start));
  keys_.prune(start + kSessionMs);
  EXPECT_FALSE(keys_.end_session(cookie)) << "it was pruned";

  const std::string second = keys_.begin_session("", "generate", start);
  EXPECT_TRUE(keys_.end_session(second));
  EXPECT_FALSE(keys_.session(second, start));
}

TEST_F(KeyStoreTest, RevokingAKeyEndsItsSessions) {
  const auto key = keys_.add("page", "admin"), other = keys_.add("other", "admin");
  const std::string cookie = keys_.begin_session(key.key.id, "admin", 5), kept = keys_.begin_session(other.key.id, "admin", 5);
  keys_.revoke(key.key.id);
  EXPECT_FALSE(keys_.session(cookie, 6));
  EXPECT_TRUE(keys_.session(kept, 6));
}

TEST_F(KeyStoreTest, KeepsNoSecretInTheFile) {
  const auto key = keys_.add("page", "admin");
  const std::string cookie = keys_.begin_session(key.key.id, "admin", 5);
  for (const char* suffix : {"", "-wal"}) {
    std::ifstream file(file_.string() + suffix, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(content.find(key.secret), content.npos);
    EXPECT_EQ(content.find(cookie), content.npos);
  }
}

}  // namespace
}  // namespace flux2
