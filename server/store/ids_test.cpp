#include "server/store/ids.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace flux2 {
namespace {

TEST(Ids, AreWellFormedAndIncreaseWithinAProcess) {
  std::string last;
  for (int i = 0; i < 20'000; ++i) {
    const std::string id = new_id();
    ASSERT_TRUE(is_id(id)) << id;
    ASSERT_LT(last, id);
    last = id;
  }
}

TEST(Ids, OfSeveralThreadsDiffer) {
  std::vector<std::vector<std::string>> made(4);
  {
    std::vector<std::jthread> threads;
    for (auto& list : made)
      threads.emplace_back([&list] {
        for (int i = 0; i < 2000; ++i) list.push_back(new_id());
      });
  }
  std::set<std::string> all;
  for (const auto& list : made) all.insert(list.begin(), list.end());
  EXPECT_EQ(all.size(), 8000u);
}

TEST(Ids, BeginWithTheTime) {
  const std::string digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  const int64_t before = now_ms();
  const std::string id = new_id();
  int64_t ms = 0;
  for (size_t i = 0; i < 10; ++i) ms = ms * 32 + static_cast<int64_t>(digits.find(id[i]));
  EXPECT_GE(ms, before);
  EXPECT_LE(ms, now_ms() + 1);
}

TEST(Ids, RandomPartUsesAllItsDigits) {
  std::vector<std::set<char>> seen(26);
  for (int i = 0; i < 300; ++i) {
    const int64_t start = now_ms();
    const std::string id = new_id();
    for (size_t k = 0; k < id.size(); ++k) seen[k].insert(id[k]);
    while (now_ms() == start) {}  // a new draw
  }
  for (size_t k = 10; k < 26; ++k) EXPECT_GT(seen[k].size(), 20u) << "digit " << k;
}

TEST(Ids, RefuseOtherTexts) {
  EXPECT_FALSE(is_id(""));
  EXPECT_FALSE(is_id("01ARZ3NDEKTSV4RRFFQ69G5FA"));
  EXPECT_TRUE(is_id("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
  EXPECT_FALSE(is_id("81ARZ3NDEKTSV4RRFFQ69G5FAV"));  // beyond 48 bits
  EXPECT_FALSE(is_id("01ARZ3NDEKTSV4RRFFQ69G5FAU"));  // U is no digit
  EXPECT_FALSE(is_id("01arz3ndektsv4rrffq69g5fav"));
  EXPECT_FALSE(is_id("../../../../../../../etc/p"));
  EXPECT_EQ(id_without_prefix("job_01ARZ3NDEKTSV4RRFFQ69G5FAV", "job_"), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
  EXPECT_EQ(id_without_prefix("ast_01ARZ3NDEKTSV4RRFFQ69G5FAV", "job_"), "");
  EXPECT_EQ(id_without_prefix("job_../x", "job_"), "");
}

TEST(Rfc3339, ShowsMillisecondsInUtc) {
  EXPECT_EQ(rfc3339(0), "");
  EXPECT_EQ(rfc3339(1), "1970-01-01T00:00:00.001Z");
  EXPECT_EQ(rfc3339(1'709'210'096'789), "2024-02-29T12:34:56.789Z");
}

TEST(RandomToken, IsBase64UrlWithoutPadding) {
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) {
    const std::string token = random_token(32);
    EXPECT_EQ(token.size(), 43u);
    EXPECT_EQ(token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), token.npos);
    seen.insert(token);
  }
  EXPECT_EQ(seen.size(), 200u);
}

}  // namespace
}  // namespace flux2
