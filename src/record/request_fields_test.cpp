#include "record/request_fields.h"

#include <gtest/gtest.h>

#include <set>

namespace flux2 {
namespace {

TEST(RequestFields, NamesAreUniqueAndEveryMemberIsNamedOnce) {
  std::set<std::string> names, keys;
  for (const Field& f : request_fields()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_EQ(f.name.find('-'), std::string::npos);
    EXPECT_TRUE(f.record_key.empty() || keys.insert(f.record_key).second) << f.record_key;
    const bool bound = !std::holds_alternative<std::monostate>(f.member);
    EXPECT_EQ(bound, !f.later && f.type != FieldType::Size) << f.name;
    EXPECT_EQ(find_field(option_name(f)), &f);
  }
  for (const Field& a : request_fields())
    for (const Field& b : request_fields())
      EXPECT_TRUE(&a == &b || std::holds_alternative<std::monostate>(a.member) || a.member != b.member)
          << a.name << " " << b.name;
  EXPECT_EQ(option_name(field("time_rounding")), "time-rounding");
  EXPECT_EQ(environment_name(field("time_rounding")), "FLUX2_TIME_ROUNDING");
  EXPECT_EQ(config_key(field("max_ram")), "memory.max-ram");
  EXPECT_EQ(config_key(field("prompt")), "");
}

}  // namespace
}  // namespace flux2
