#include "app/settings.h"

#include <gtest/gtest.h>

#include "app/test_words.h"
#include "base/error.h"
#include "record/field_values.h"

namespace flux2 {
namespace {

Settings layered(std::vector<std::string> words, std::map<std::string, std::string> variables,
                 std::map<std::string, std::vector<std::string>> project, std::map<std::string, std::vector<std::string>> user) {
  std::vector<const Field*> fields;
  for (const Field& f : request_fields()) fields.push_back(&f);
  Settings settings;
  settings.add(layer_of_words(words));
  settings.add(layer_of_environment(fields, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  }));
  settings.add(layer_of_file(fields, {"flux2.toml", std::move(project)}));
  settings.add(layer_of_file(fields, {"config.toml", std::move(user)}));
  return settings;
}

TEST(Settings, CommandLineThenEnvironmentThenProjectThenUser) {
  const auto steps = [](const Settings& s) { return s.integer("steps", 1, 256); };
  const std::map<std::string, std::string> variables = {{"FLUX2_STEPS", "2"}};
  const std::map<std::string, std::vector<std::string>> project = {{"generate.steps", {"3"}}}, user = {{"generate.steps", {"4"}}};
  EXPECT_EQ(steps(layered({"-s", "1"}, variables, project, user)), 1);
  EXPECT_EQ(steps(layered({}, variables, project, user)), 2);
  EXPECT_EQ(steps(layered({}, {}, project, user)), 3);
  EXPECT_EQ(steps(layered({}, {}, {}, user)), 4);
  EXPECT_EQ(steps(layered({}, {}, {}, {})), std::nullopt);
  EXPECT_EQ(layered({}, {}, project, user).find("steps")->origin, "generate.steps in flux2.toml");
}

TEST(Settings, SizeOverridesAWidthOfALowerLayer) {
  const Settings s = layered({"--size", "512x256"}, {{"FLUX2_WIDTH", "768"}}, {}, {});
  EXPECT_EQ(s.integer("width", 1, 4096), 512);
  EXPECT_EQ(s.integer("height", 1, 4096), 256);
  EXPECT_EQ(layered({"--size", "512x256", "-W", "128"}, {}, {}, {}).integer("width", 1, 4096), 128);
  EXPECT_EQ(layered({"-W", "128"}, {{"FLUX2_SIZE", "512x256"}}, {}, {}).integer("height", 1, 4096), 256);
}

TEST(Settings, PresetOverridesLowerLayers) {
  Settings s = layered({"--preset", "draft"}, {{"FLUX2_STEPS", "50"}}, {}, {});
  s.add_below("preset", {{"steps", {{"4"}, "--preset draft"}}});
  EXPECT_EQ(s.integer("steps", 1, 256), 4);
  s = layered({"-s", "9"}, {{"FLUX2_PRESET", "draft"}}, {{"generate.steps", {"50"}}}, {});
  s.add_below("preset", {{"steps", {{"4"}, "--preset draft"}}});
  EXPECT_EQ(s.integer("steps", 1, 256), 9);
}

TEST(Settings, ARecordHidesWhatItCouldHaveSaid) {
  RequestSpec recorded;
  recorded.steps = 4;
  Settings s = layered({"--shift", "3", "--from", "x.png"}, {{"FLUX2_STEPS", "9"}, {"FLUX2_TILE", "x"}, {"FLUX2_SHIFT", "2"}},
                       {{"generate.format", {"jpg"}}}, {});
  s.add_below("from", layer_of_record(recorded, "x.png"));
  EXPECT_EQ(s.integer("steps", 1, 256), 4);
  EXPECT_FALSE(s.has("tile"));
  EXPECT_FALSE(spec_of(s).tile);
  EXPECT_EQ(s.number("shift", 0, 9), 3) << "the request itself is above the record";
  EXPECT_EQ(s.text("format"), "jpg") << "a record does not say how its file is written";
}

TEST(Settings, ARecordWithoutARoundingLeavesTheConfiguredOne) {
  RequestSpec recorded;
  const auto rounding = [&] {
    Settings s = layered({"--from", "x.png"}, {}, {}, {{"generate.rounding", {"trunc"}}});
    s.add_below("from", layer_of_record(recorded, "x.png"));
    return s.text("rounding");
  };
  EXPECT_EQ(rounding(), "trunc");
  recorded.rounding = "nearest";
  EXPECT_EQ(rounding(), "nearest");
}

TEST(Settings, AModelThatIsNamedHidesAConfiguredTransformer) {
  const Settings configured = layered({}, {{"FLUX2_DIT", "x.safetensors"}}, {}, {{"generate.dit", {"y.safetensors"}}});
  const auto transformer = [](const Settings& below, SettingLayer layer) {
    hide_configured_transformer(layer, below);
    return below.with(layer).text("dit");
  };
  EXPECT_EQ(transformer(configured, layer_of_words({"--model", "pico"})), "");
  EXPECT_EQ(transformer(configured, {{"dir", {{"pico"}, "--dir"}}}), "");
  EXPECT_EQ(transformer(configured, layer_of_words({"--model", "pico", "--dit", "z.safetensors"})), "z.safetensors");
  EXPECT_EQ(transformer(configured, layer_of_words({"-s", "4"})), "x.safetensors");
  EXPECT_EQ(transformer(layered({"--dit", "a.safetensors"}, {}, {}, {}), layer_of_words({"--model", "pico"})), "a.safetensors")
      << "it was asked for";
}

std::string failure(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Settings, InvalidValuesAreRejectedInEveryLayer) {
  EXPECT_EQ(failure([] { layered({}, {{"FLUX2_STEPS", "0"}}, {}, {}); }), "FLUX2_STEPS: \"0\" is less than 1");
  EXPECT_EQ(failure([] {
              spec_of(layered({"--guidance", "many"}, {}, {}, {}));
            }),
            "--guidance: \"many\" is not a number from 0 to 100");
  EXPECT_EQ(failure([] {
              layered({}, {}, {{"generate.strict", {"maybe"}}}, {});
            }),
            "generate.strict in flux2.toml: \"maybe\" is not true or false");
  EXPECT_THROW(spec_of(layered({"--steps", "4x"}, {}, {}, {})), Error);
}

TEST(Settings, UnavailableFieldsAreRejectedInEveryLayer) {
  EXPECT_EQ(failure([] {
              layered({}, {{"FLUX2_PLACE", "te=cpu"}}, {}, {});
            }),
            "FLUX2_PLACE: te=cpu is not available yet in this version");
  EXPECT_NE(failure([] {
              layered({}, {}, {{"memory.blocks-resident", {"5"}}}, {});
            }).find("not available yet"),
            std::string::npos);
  EXPECT_EQ(failure([] { layered({}, {{"FLUX2_UPSAMPLE", "none"}}, {{"memory.place", {"auto"}}}, {}); }), "");
}

TEST(Settings, SpecRecordsTheOriginOfValues) {
  const RequestSpec spec = spec_of(layered({"-s", "8"}, {{"FLUX2_WIDTH", "768"}}, {{"generate.sampler", {"heun"}}}, {}));
  EXPECT_EQ(spec.steps, 8);
  EXPECT_EQ(spec.width, 768);
  EXPECT_EQ(spec.sampler, "heun");
  EXPECT_EQ(spec.origin("steps"), "--steps");
  EXPECT_EQ(spec.origin("sampler"), "generate.sampler in flux2.toml");
  EXPECT_EQ(spec.origin("noise"), "noise");
  EXPECT_TRUE(spec.is_asked("steps"));
  EXPECT_FALSE(spec.is_asked("width")) << "the environment sets defaults";
  EXPECT_FALSE(spec.is_asked("height"));
}

// Every field that a configuration may set can be set by its environment variable and by its key.
TEST(Settings, EveryConfigurableFieldComesFromEnvironmentAndFile) {
  for (const Field& f : request_fields()) {
    if (f.section.empty() || f.later || f.type == FieldType::Size) continue;
    const std::string value = f.type == FieldType::Integer  ? std::to_string(static_cast<int64_t>(f.high))
                              : f.type == FieldType::Number ? "1"
                              : f.type == FieldType::Flag   ? "true"
                              : f.type == FieldType::Choice ? f.choices.back()
                              : f.type == FieldType::Seed   ? "7"
                              : f.name == "schedule"        ? "linear"
                              : f.name == "noise"           ? "grid"
                              : f.name == "format"          ? "jpg"
                              : f.name == "metadata"        ? "none"
                              : f.name == "ref_pixels"      ? "65536"
                              : f.name == "upsample_url"    ? "http://localhost/v1"
                              : f.name == "mask_service"    ? "http://localhost:8001"
                              : f.name == "upsample_params" ? "{}"
                              : f.check_text                ? "off"
                                                            : "some text";
    const RequestSpec spec = spec_of(layered({}, {{environment_name(f), value}}, {}, {}));
    ASSERT_TRUE(get_value(spec, f)) << f.name;
    EXPECT_EQ(print_value(*get_value(spec, f)).front(), value) << f.name;
    EXPECT_EQ(get_value(spec_of(layered({}, {}, {{config_key(f), {value}}}, {})), f), get_value(spec, f)) << f.name;
    Settings again;
    again.add(layer_of(spec, "again"));
    EXPECT_EQ(get_value(spec_of(again), f), get_value(spec, f)) << f.name;
  }
}

}  // namespace
}  // namespace flux2
