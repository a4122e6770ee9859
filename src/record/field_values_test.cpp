#include "record/field_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "record/a1111_text.h"
#include "record/generation_record.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

// A text that is valid for the field, different from its default.
std::vector<std::string> example_of(const Field& f) {
  static const std::map<std::string, std::vector<std::string>> own = {
      {"schedule", {"power:1.5"}},
      {"noise", {"grid"}},
      {"format", {"ppm"}},
      {"metadata", {"json,comfy"}},
      {"mask_box", {"1,2,30,40", "5,6,7,8"}},
      {"mask_ellipse", {"1,2,30,40"}},
      {"mask_polygon", {"1,2 30,40 5,6", "0,0 9,0 9,9 0,9"}},
      {"mask_wand", {"7,8", "9,10:40"}},
      {"mask_color", {"#ff8000:12", "#000000"}},
      {"mask_points", {"7,8", "9.5,10:0"}},
      {"mask_service", {"http://localhost:8001"}},
      {"variation", {"7:0.25"}},
      {"region", {"a cat@1,2,30,40", "a dog, with a comma: \"x\""}},
      {"region_reference", {"1:one.png", "16:a: b.png"}},
      {"image_prompt", {"one.png", "a: b.png:0.5:0-0.25"}},
      {"hires", {"1.5"}},
      {"detail_box", {"1,2,3,4", "5,6,7,8"}},
      {"extend", {"0,0,16,0"}},
      {"crop", {"64"}},
      {"match", {"2"}},
      {"ref_pixels", {"512x512"}},
      {"vae_tile", {"256"}},
      {"quant_cache", {"5"}},
      {"size", {"768x512"}},
      {"watermark", {"0f1e"}},
      {"cache", {"0.25"}},
      {"upsample_url", {"http://localhost:8080/v1"}},
      {"upsample_params", {"{\"temperature\": 0.2}"}},
      {"seed", {"9223372036854775807"}},
  };
  if (const auto found = own.find(f.name); found != own.end()) return found->second;
  switch (f.type) {
    case FieldType::Texts: return {"one.png", "two, with a comma: \"x\""};
    case FieldType::Integer: return {std::to_string(static_cast<int64_t>(f.high))};
    case FieldType::Number: return {f.low <= 0.75 && f.high >= 0.75 ? "0.75" : "12.5"};
    case FieldType::Flag: return {"true"};
    case FieldType::Choice: return {f.choices.back()};
    default: return {"some text, \"quoted\": ü\nsecond line"};
  }
}

// Every field goes out and comes back through every form.
TEST(FieldValues, TextsRoundTrip) {
  for (const Field& f : request_fields()) {
    if (f.later) continue;
    const FieldValue value = parse_value(f, example_of(f), f.name);
    EXPECT_EQ(print_value(value), example_of(f)) << f.name;
    EXPECT_EQ(parse_value(f, print_value(value), f.name), value) << f.name;
  }
}

TEST(FieldValues, SpecsRoundTripAsJson) {
  RequestSpec all;
  for (const Field& f : request_fields()) {
    if (f.later || f.type == FieldType::Size) continue;
    set_value(all, f, parse_value(f, example_of(f), f.name));
    ASSERT_TRUE(get_value(all, f)) << f.name;
  }
  const RequestSpec back = spec_from_json(spec_to_json(all));
  for (const Field& f : request_fields()) EXPECT_EQ(get_value(back, f), get_value(all, f)) << f.name;
  EXPECT_EQ(parse_json(spec_to_json(all).dump()), spec_to_json(all));
}

TEST(FieldValues, RecordsRoundTripAsJsonAndA1111) {
  for (const Field& f : request_fields()) {
    if (f.record_key.empty()) continue;
    GenerationRecord record;
    set_value(record.request, f, parse_value(f, example_of(f), f.name));
    const GenerationRecord back = record_from_json(parse_json(to_json(record).dump()));
    EXPECT_EQ(get_value(back.request, f), get_value(record.request, f)) << f.name;
    const Json hidden = to_json(record, true);
    EXPECT_TRUE(!f.is_private || !hidden.contains(f.record_key)) << f.name;
    if (f.a1111_key.empty()) continue;
    const GenerationRecord read = record_from_a1111(parse_a1111(to_a1111(record)));
    EXPECT_EQ(get_value(read.request, f), get_value(record.request, f)) << f.name << "\n" << to_a1111(record);
  }
}

std::string refusal(const std::string& name, const std::string& text) {
  try {
    parse_value(field(name), {text}, "--" + name);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    return e.what();
  }
  return "";
}

TEST(FieldValues, InvalidValuesNameTheirOriginAndWhatIsValid) {
  EXPECT_EQ(refusal("steps", "abc"), "--steps: \"abc\" is not a whole number");
  EXPECT_EQ(refusal("steps", "0"), "--steps: \"0\" is less than 1");
  // How many are allowed is a limit, which the user may raise.
  EXPECT_EQ(refusal("steps", "1001"), "");
  EXPECT_EQ(refusal("steps", "10000000"), "--steps: \"10000000\" is too large");
  EXPECT_EQ(refusal("steps", "99999999999999999999"), "--steps: \"99999999999999999999\" is too large");
  EXPECT_EQ(refusal("width", "abc"), "--width: \"abc\" is not a whole number");
  EXPECT_EQ(refusal("width", "0"), "--width: \"0\" is less than 64");
  EXPECT_EQ(refusal("height", "-16"), "--height: \"-16\" is less than 64");
  EXPECT_EQ(refusal("height", "40"), "") << "the image that a record is about may be smaller";
  EXPECT_EQ(refusal("steps", "1000"), "");
  EXPECT_EQ(refusal("guidance", "nan"), "--guidance: \"nan\" is not a number from 0 to 100");
  EXPECT_THAT(refusal("sampler", "ddim"), HasSubstr("is not one of euler, heun, dpmpp2m"));
  EXPECT_THAT(refusal("seed", "-2"), HasSubstr("2^63-1"));
  EXPECT_THAT(refusal("crop", "wide"), HasSubstr("auto, off"));
  EXPECT_THAT(refusal("size", "large"), HasSubstr("--size"));
  EXPECT_THAT(refusal("upsample", "magic"), HasSubstr("is not one of none"));
  EXPECT_THAT(refusal("upsample_url", "localhost"), HasSubstr("--upsample_url"));
  EXPECT_THAT(refusal("upsample_params", "[1]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(refusal("place", "te=cpu"), HasSubstr("not available yet"));
  EXPECT_EQ(refusal("upsample", "none"), "");
}

TEST(FieldValues, RejectsJsonOfTheWrongType) {
  const auto failure = [](const Json& json) -> std::string {
    try {
      spec_from_json(json);
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "";
  };
  EXPECT_THAT(failure({{"steps", "4"}}), HasSubstr("steps: expected a whole number, found string"));
  EXPECT_THAT(failure({{"steps", 4.5}}), HasSubstr("whole number"));
  EXPECT_THAT(failure({{"steps", 0}}), HasSubstr("less than 1"));
  EXPECT_THAT(failure({{"quality", 101}}), HasSubstr("from 1 to 100"));
  EXPECT_THAT(failure({{"stpes", 4}}), HasSubstr("did you mean steps?"));
  EXPECT_THAT(failure({{"input", Json::array({1})}}), HasSubstr("list of strings"));
  EXPECT_THAT(failure({{"seed", 18446744073709551615ull}}), HasSubstr("too large"));
  EXPECT_EQ(failure({{"steps", nullptr}, {"seed", "random"}, {"size", "16:9"}}), "");
}

}  // namespace
}  // namespace flux2
