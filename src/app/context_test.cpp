#include "app/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

AppContext context_with(const std::vector<std::string>& paths, const char* home) {
  AppContext context;
  context.environment = [home](const char* name) -> const char* {
    return std::string_view(name) == "HOME" ? home : std::string_view(name) == "FLUX2_HOME" ? "/data" : nullptr;
  };
  context.user.path = "/config/config.toml";
  context.user.values["models.paths"] = paths;
  return context;
}

TEST(ModelFolders, TheTildeIsTheHomeFolder) {
  EXPECT_THAT(model_folders(context_with({"~", "~/my models", "~//x", "here", "/there", "a/~", "./~ana"}, "/home/ana")),
              ElementsAre("/home/ana", "/home/ana/my models", "/home/ana//x", "/config/here", "/there", "/config/a/~",
                          "/config/./~ana", "/data/models"));
}

TEST(ModelFolders, OtherTildesAreRefused) {
  const auto refusal = [](const char* path, const char* home) -> std::string {
    try {
      model_folders(context_with({path}, home));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "";
  };
  EXPECT_THAT(refusal("~bob/models", "/home/ana"), HasSubstr("\"~bob/models\""));
  EXPECT_THAT(refusal("~bob/models", "/home/ana"), HasSubstr("full path"));
  EXPECT_THAT(refusal("~/models", nullptr), HasSubstr("HOME is not set"));
}

}  // namespace
}  // namespace flux2
