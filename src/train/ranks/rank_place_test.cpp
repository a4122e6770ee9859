#include "train/ranks/rank_place.h"

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "base/error.h"

namespace flux2 {
namespace {

std::optional<RankPlace> place_in(const std::map<std::string, std::string>& environment) {
  return rank_from_environment([&](const char* name) {
    const auto at = environment.find(name);
    return at == environment.end() ? nullptr : at->second.c_str();
  });
}

std::string refusal_of(const std::map<std::string, std::string>& environment) {
  try {
    place_in(environment);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    return e.what();
  }
  return "accepted";
}

TEST(RankPlace, IsReadFromTheEnvironment) {
  EXPECT_FALSE(place_in({}));
  EXPECT_FALSE(place_in({{"MASTER_PORT", "1234"}}));
  const auto place = place_in({{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "1234"},
                               {"FLUX2_RANK_TOKEN", "x"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->address, "10.0.0.1");
  EXPECT_EQ(place->port, 1234);
  EXPECT_EQ(place->token, "x");
  EXPECT_EQ(place_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}})->local_rank, 1);
}

// torchrun keeps MASTER_PORT for itself.
TEST(RankPlace, LeavesThePortOfTorchrunAlone) {
  const auto port = [](const char* given, const char* agent) {
    return place_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", given}, {"TORCHELASTIC_USE_AGENT_STORE", agent}})->port;
  };
  EXPECT_EQ(port("29500", "True"), 29501);
  EXPECT_EQ(port("65535", "True"), 65534);
  EXPECT_EQ(port("29500", "False"), 29500);
}

TEST(RankPlace, RefusesWhatMakesNoSense) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal_of({{"RANK", "0"}}), HasSubstr("WORLD_SIZE is missing"));
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is missing"));
  EXPECT_THAT(refusal_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is \"2\"; it must be a number from 0 to 1"));
  EXPECT_THAT(refusal_of({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is \"1x\""));
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE is \"0\""));
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), HasSubstr("1 to 65535"));
}

}  // namespace
}  // namespace flux2
