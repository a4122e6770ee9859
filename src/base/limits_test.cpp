#include "base/limits.h"

#include <gtest/gtest.h>

#include <set>

namespace flux2 {
namespace {

TEST(Limits, EveryFieldSetsItsOwnValue) {
  std::set<std::string_view> names;
  for (const LimitField& field : limit_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(find_limit(field.name), &field);
    const Limits person;
    EXPECT_LE(field.low, field.get(person)) << field.name;
    EXPECT_GE(field.high, field.get(person)) << field.name;
    Limits changed;
    const uint64_t value = field.get(person) == field.low ? field.high : field.low;
    field.set(changed, value);
    for (const LimitField& other : limit_fields())
      EXPECT_EQ(other.get(changed), &other == &field ? value : other.get(person)) << field.name << " changes " << other.name;
    field.set(changed, field.high);
    EXPECT_EQ(field.get(changed), field.high) << field.name << " is stored in a type that holds its range";
  }
  EXPECT_EQ(find_limit("nothing"), nullptr);
}

TEST(Limits, AServerAllowsNoMoreThanAPerson) {
  const Limits person, server = Limits::for_server();
  for (const LimitField& field : limit_fields()) {
    EXPECT_LE(field.get(server), field.get(person)) << field.name;
    EXPECT_GE(field.get(server), field.low) << field.name;
  }
}

TEST(Limits, AMessageStatesBothNumbersAndHowToRaiseTheLimit) {
  EXPECT_NO_THROW(check_limit("json-keys", 7, 7, "the JSON text has {} keys"));
  try {
    check_limit("json-keys", 8, 7, "the JSON text has {} keys");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "the JSON text has 8 keys; the limit is 7");
    EXPECT_EQ(e.hint().plain(), "if you trust the source, raise the limit with config set limits.json-keys 8");
  }
  try {
    check_limit("text-bytes", uint64_t{3} << 30, 64 << 20, "the file has {}");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "the file has 3.00 GiB; the limit is 64.0 MiB");
  }
  try {
    check_limit("image-pixels", UINT64_MAX, 1, "the image has {} pixels");
    FAIL();
  } catch (const Error& e) {
    EXPECT_TRUE(e.hint().empty()) << "no setting allows this much";
  }
}

}  // namespace
}  // namespace flux2
