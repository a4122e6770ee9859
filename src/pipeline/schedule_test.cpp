#include "pipeline/schedule.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

TEST(Schedule, EqualsTheReferenceBitForBit) {
  const Json lists = read_json(test::golden_folder() / "schedules.json");
  int compared = 0;
  for (const auto& [key, expected] : lists.items()) {
    const size_t comma = key.find(',');
    const auto sigmas = flux2_schedule(std::stoll(key.substr(0, comma)), std::stoi(key.substr(comma + 1)));
    ASSERT_EQ(sigmas.size(), expected.size()) << key;
    for (size_t i = 0; i < sigmas.size(); ++i) EXPECT_EQ(sigmas[i], expected[i].get<float>()) << key << " at " << i;
    ++compared;
  }
  EXPECT_EQ(compared, 70);
}

TEST(Schedule, MuJumpsAbove4300Tokens) {
  EXPECT_NEAR(flux2_mu(4300, 4), 2.308478071, 1e-8);
  EXPECT_NEAR(flux2_mu(4301, 4), 1.184696930, 1e-8);
  EXPECT_NEAR(flux2_mu(256, 50), 1.621607470, 1e-8);
}

TEST(Schedule, Kinds) {
  EXPECT_EQ(make_sigmas(parse_schedule("linear"), 64, 4), (std::vector<float>{1, 0.75f, 0.5f, 0.25f, 0}));
  EXPECT_EQ(make_sigmas(parse_schedule("power:2"), 64, 2), (std::vector<float>{1, 0.25f, 0}));
  EXPECT_EQ(make_sigmas(parse_schedule("sigmas:1,0.5"), 64, 9), (std::vector<float>{1, 0.5f, 0}));
  EXPECT_EQ(make_sigmas(parse_schedule("model"), 1024, 4), flux2_schedule(1024, 4));
  EXPECT_NEAR(make_sigmas({}, 64, 2, 3.0)[1], 0.75, 1e-6);  // shift 3 at one half: 3·½ / (1 + 2·½)
  for (const char* bad : {"", "cosine", "power:x", "power:-1", "sigmas:", "sigmas:0.5,0.7", "sigmas:2", "sigmas:0", "linear:2"})
    EXPECT_THROW(parse_schedule(bad), Error) << bad;
  EXPECT_THROW(make_sigmas({}, 64, 0), Error);
}

TEST(Schedule, TimeRounding) {
  const float sigmas[] = {0.958085358f, 0.883981884f, 0.717496574f, 0.96738404f, 0.908143938f, 0.767199934f};
  const float bfl[] = {956, 884, 720, 968, 908, 764}, diffusers[] = {960, 884, 716, 968, 908, 768};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(time_argument(sigmas[i], TimeRounding::Bfl), bfl[i]);
    EXPECT_EQ(time_argument(sigmas[i], TimeRounding::Diffusers), diffusers[i]);
    EXPECT_FLOAT_EQ(time_argument(sigmas[i], TimeRounding::Exact), 1000.0f * sigmas[i]);
  }
  EXPECT_EQ(time_argument(2.5f, TimeRounding::Bfl), 2496.0f);
  EXPECT_EQ(parse_time_rounding("bfl"), TimeRounding::Bfl);
  EXPECT_THROW(parse_time_rounding("bf16"), Error);
}

}  // namespace
}  // namespace flux2
