#include "app/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/model_choice.h"
#include "base/error.h"
#include "tests/support/paths.h"

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

TEST(BundledModels, TheOneOfFourStepsComesFirst) {
  const auto nothing_set = [](const char*) -> const char* { return nullptr; };
  const auto models = bundled_models(nothing_set);
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].filename(), "pico-4-steps");
  EXPECT_EQ(models[1], models[0].parent_path() / "pico");
  EXPECT_EQ(bundled_model(nothing_set), models[0]);
}

TEST(BundledModels, AFolderThatLendsNothingIsAlone) {
  const std::string pico = test::pico_folder();
  EXPECT_THAT(
      bundled_models([&](const char* name) { return std::string_view(name) == "FLUX2_BUNDLED" ? pico.c_str() : nullptr; }),
      ElementsAre(test::pico_folder()));
  EXPECT_TRUE(bundled_models([](const char* name) { return std::string_view(name) == "FLUX2_BUNDLED" ? "" : nullptr; }).empty());
}

TEST(ModelToTrain, IsTheBundledModelWithGuidance) {
  AppContext context;
  context.environment = [](const char*) -> const char* { return nullptr; };
  EXPECT_EQ(choose_model({}, context).id, "pico-4-steps");
  EXPECT_EQ(choose_model_to_train({}, context).id, "pico");
  EXPECT_EQ(choose_model_to_train({.model = "pico-4-steps"}, context).id, "pico-4-steps");
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
