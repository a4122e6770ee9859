#include "app/upscalers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <optional>

#include "app/registry_access.h"
#include "base/error.h"
#include "hub/registry/describe.h"
#include "tests/support/random_upscaler.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Upscalers, TheSmallestScaleThatIsEnoughIsUsed) {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("flux2_upscalers_{}", ::getpid());
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string home = folder.string();
  AppContext run;
  run.environment = [&](const char* name) { return std::string_view(name) == "FLUX2_HOME" ? home.c_str() : nullptr; };
  EXPECT_TRUE(registered_upscalers(run).empty());
  try {
    find_upscaler({}, 2, run);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_THAT(e.hint().plain(), HasSubstr("models install realesrgan-x4plus"));
  }

  std::map<int, fs::path> files;
  std::optional<Registry> registry;
  try {
    registry.emplace(open_registry(run));
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();  // built without SQLite
  }
  for (int scale : {1, 2, 4}) {
    files[scale] = test::write_random_upscaler(folder / fmt::format("big{}.safetensors", scale),
                                               {.scale = scale, .blocks = 1, .width = 4, .growth = 2});
    registry->add(identify(files[scale]).front().record);
  }
  ASSERT_EQ(registered_upscalers(run).size(), 3u);
  EXPECT_EQ(scale_of(registered_upscalers(run)[1]), 2);
  EXPECT_EQ(find_upscaler({}, 1, run), files[1]);
  EXPECT_EQ(find_upscaler({}, 1.5, run), files[2]);
  EXPECT_EQ(find_upscaler({}, 2, run), files[2]);
  EXPECT_EQ(find_upscaler({}, 3, run), files[4]);
  EXPECT_EQ(find_upscaler({}, 8, run), files[4]);
  EXPECT_EQ(find_upscaler("big2", 4, run), files[2]);
  EXPECT_EQ(find_upscaler(files[1].string(), 4, run), files[1]);
  EXPECT_THROW(find_upscaler("nobody", 2, run), Error);
  fs::remove(files[2]);
  EXPECT_EQ(find_upscaler({}, 2, run), files[4]) << "files that are gone are not chosen";
}

}  // namespace
}  // namespace flux2
