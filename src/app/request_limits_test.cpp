#include "app/request_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/resolve.h"
#include "base/error.h"
#include "base/rng.h"
#include "record/field_values.h"
#include "record/request_fields.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

const GetEnv kNothing = [](const char*) -> const char* { return nullptr; };

std::string refusal_of(const RequestSpec& spec, const Limits& limits = {}) {
  try {
    check_request_limits(spec, limits);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    EXPECT_FALSE(e.hint().empty()) << e.what();
    return e.what();
  }
  return "";
}

TEST(RequestLimits, AreCheckedForEveryField) {
  EXPECT_EQ(refusal_of({}), "");
  RequestSpec s;
  s.width = 4097;
  EXPECT_EQ(refusal_of(s), "width: 4097 pixels; the limit is 4096");
  s = {}, s.batch = 1025, s.origins["batch"] = "--batch";
  EXPECT_EQ(refusal_of(s), "--batch: 1025 images; the limit is 1024");
  s = {}, s.steps = 257;
  EXPECT_THAT(refusal_of(s), HasSubstr("257 steps"));
  s = {}, s.repeat = 100'001;
  EXPECT_THAT(refusal_of(s), HasSubstr("100001 repetitions"));
  s = {}, s.threads = 2000;
  EXPECT_THAT(refusal_of(s), HasSubstr("2000 threads"));
  s = {}, s.input = std::vector<std::string>(17, "a.png");
  EXPECT_THAT(refusal_of(s), HasSubstr("17 references"));
  s = {}, s.lora = std::vector<std::string>(65, "ink");
  EXPECT_THAT(refusal_of(s), HasSubstr("65 adapters"));
  s = {}, s.prompt = std::string((1 << 20) + 1, 'a');
  EXPECT_THAT(refusal_of(s), HasSubstr("1048577 bytes long"));
  s = {}, s.negative = s.prompt = std::string(40 << 10, 'a');
  EXPECT_EQ(refusal_of(s), "");
  EXPECT_THAT(refusal_of(s, Limits::for_server()), HasSubstr("prompt: 40.0 KiB long; the limit is 32.0 KiB"));
  s = {}, s.width = 4096, s.height = 4096;
  EXPECT_EQ(refusal_of(s), "");
  Limits fewer;
  fewer.request.pixels = 1 << 20;
  EXPECT_THAT(refusal_of(s, fewer), HasSubstr("an image of 16777216 pixels; the limit is 1048576"));
}

TEST(RequestLimits, CountAWholeRun) {
  RequestSpec s;
  EXPECT_NO_THROW(check_run_limits(100'000, s, {}));
  EXPECT_THROW(check_run_limits(100'001, s, {}), Error);
  s.repeat = 100'000;
  EXPECT_NO_THROW(check_run_limits(1, s, {}));
  EXPECT_THROW(check_run_limits(2, s, {}), Error);
  EXPECT_THROW(check_run_limits(1, s, Limits::for_server()), Error);
}

TEST(RequestLimits, ComeFromTheUserAndTheEnvironment) {
  ConfigFile user{"config.toml", {{"limits.steps", {"500"}}, {"limits.batch", {"2"}}}};
  const GetEnv environment = [](const char* name) { return std::string_view(name) == "FLUX2_LIMITS_BATCH" ? "3" : nullptr; };
  const Limits limits = limits_of(environment, user);
  EXPECT_EQ(limits.request.steps, 500);
  EXPECT_EQ(limits.request.batch, 3);
  EXPECT_EQ(limits_of(kNothing, {}).request.steps, Limits().request.steps);
  user.values["limits.steps"] = {"many"};
  EXPECT_THROW(limits_of(kNothing, user), Error);
}

// Any JSON that a front end may send becomes a spec that is resolved or refused.
TEST(RequestLimits, AnySpecIsResolvedOrRefused) {
  uint64_t count = 0;
  const auto below = [&](uint64_t n) { return philox(11, count++, 0)[0] % n; };
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    1,
                                    16,
                                    64,
                                    1'000'000,
                                    INT64_MAX,
                                    INT64_MIN,
                                    UINT64_MAX,
                                    0.5,
                                    -1e300,
                                    1e300,
                                    "",
                                    "a",
                                    "off",
                                    "-1",
                                    "1e999",
                                    std::string(3000, 'x'),
                                    "64x64",
                                    "1:1",
                                    "sigmas:1,0.5",
                                    "\xff",
                                    Json::array(),
                                    Json::array({"a", 1}),
                                    Json::object(),
                                    "0,0,1,1",
                                    "torch-cuda:1x256"};
  std::vector<std::string> names;
  for (const Field& f : request_fields())
    if (f.name != "input" && f.name != "mask" && f.name != "embeddings" && f.name != "noise_file") names.push_back(f.name);
  ModelFiles model;
  model.id = "tiny";
  int refused = 0, resolved = 0;
  for (int i = 0; i < 5000; ++i) {
    Json json = Json::object();
    for (uint64_t n = 1 + below(3); n > 0; --n) json[names[below(names.size())]] = values[below(values.size())];
    try {
      resolve(spec_from_json(json), model, Task::Generate, {}, nullptr, below(2) ? Limits() : Limits::for_server());
      ++resolved;
    } catch (const Error& e) {
      EXPECT_NE(e.code(), ErrorCode::Internal) << json.dump(-1, ' ', true, Json::error_handler_t::replace) << ": " << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(resolved, 50);
}

}  // namespace
}  // namespace flux2
