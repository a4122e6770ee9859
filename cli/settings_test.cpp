#include "cli/settings.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

Settings layered(std::vector<std::string> words, std::map<std::string, std::string> variables,
                 std::map<std::string, std::vector<std::string>> project,
                 std::map<std::string, std::vector<std::string>> user) {
  const auto options = generate_options();
  Settings settings;
  settings.add(layer_of(parse_arguments(options, foreign_options(), std::move(words))));
  settings.add(layer_of_environment(options, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  }));
  settings.add(layer_of_file(options, {"flux2.toml", std::move(project)}));
  settings.add(layer_of_file(options, {"config.toml", std::move(user)}));
  return settings;
}

TEST(Settings, CommandLineThenEnvironmentThenProjectThenUser) {
  const auto steps = [](const Settings& s) { return s.integer("steps", 1, 256); };
  const std::map<std::string, std::string> variables = {{"FLUX2_STEPS", "2"}};
  const std::map<std::string, std::vector<std::string>> project = {{"generate.steps", {"3"}}},
                                                        user = {{"generate.steps", {"4"}}};
  EXPECT_EQ(steps(layered({"-s", "1"}, variables, project, user)), 1);
  EXPECT_EQ(steps(layered({}, variables, project, user)), 2);
  EXPECT_EQ(steps(layered({}, {}, project, user)), 3);
  EXPECT_EQ(steps(layered({}, {}, {}, user)), 4);
  EXPECT_EQ(steps(layered({}, {}, {}, {})), std::nullopt);
  EXPECT_EQ(layered({}, {}, project, user).find("steps")->origin, "generate.steps in flux2.toml");
}

TEST(Settings, ASizeBeatsAWidthOfALowerLayer) {
  const Settings s = layered({"--size", "512x256"}, {{"FLUX2_WIDTH", "768"}}, {}, {});
  EXPECT_EQ(s.integer("width", 1, 4096), 512);
  EXPECT_EQ(s.integer("height", 1, 4096), 256);
  EXPECT_EQ(layered({"--size", "512x256", "-W", "128"}, {}, {}, {}).integer("width", 1, 4096), 128);
  EXPECT_EQ(layered({"-W", "128"}, {{"FLUX2_SIZE", "512x256"}}, {}, {}).integer("height", 1, 4096), 256);
}

TEST(Settings, APresetBeatsWhatLiesBelowIt) {
  Settings s = layered({"--preset", "draft"}, {{"FLUX2_STEPS", "50"}}, {}, {});
  s.add_below("preset", {{"steps", {{"4"}, "--preset draft"}}});
  EXPECT_EQ(s.integer("steps", 1, 256), 4);
  s = layered({"-s", "9"}, {{"FLUX2_PRESET", "draft"}}, {{"generate.steps", {"50"}}}, {});
  s.add_below("preset", {{"steps", {{"4"}, "--preset draft"}}});
  EXPECT_EQ(s.integer("steps", 1, 256), 9);
}

TEST(Settings, WrongValuesNameTheirOrigin) {
  const Settings s = layered({"--guidance", "many"}, {{"FLUX2_STEPS", "0"}}, {{"generate.strict", {"maybe"}}}, {});
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { (void)s.integer("steps", 1, 256); }),
            "FLUX2_STEPS: \"0\" is not a whole number from 1 to 256");
  EXPECT_EQ(message([&] { (void)s.number("guidance", 0, 100); }), "--guidance: \"many\" is not a number from 0 to 100");
  EXPECT_NE(message([&] { (void)s.flag("strict"); }).find("generate.strict in flux2.toml"), std::string::npos);
  EXPECT_THROW((void)layered({"--steps", "4x"}, {}, {}, {}).integer("steps", 1, 256), Error);
  EXPECT_THROW((void)layered({"--guidance", "nan"}, {}, {}, {}).number("guidance", 0, 100), Error);
}

TEST(Settings, OptionsOfLaterVersionsAreIgnoredInFiles) {
  EXPECT_FALSE(layered({}, {{"FLUX2_PLACE", "te=cpu"}}, {{"memory.place", {"te=cpu"}}}, {}).has("place"));
}

}  // namespace
}  // namespace flux2
