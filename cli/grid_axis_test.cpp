#include "cli/grid_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(GridAxis, ListsAndRanges) {
  EXPECT_THAT(parse_grid_axis("steps=4,8").values, ElementsAre("4", "8"));
  EXPECT_THAT(parse_grid_axis("seed=1..3").values, ElementsAre("1", "2", "3"));
  EXPECT_THAT(parse_grid_axis("cfg=1..2:0.5,4").values, ElementsAre("1", "1.5", "2", "4"));
  EXPECT_THAT(parse_grid_axis("shift=0.1..0.4:0.1").values, ElementsAre("0.1", "0.2", "0.3", "0.4"));
  EXPECT_THAT(parse_grid_axis("prompt=a fox, red|a cat").values, ElementsAre("a fox, red", "a cat"));
  EXPECT_THAT(parse_grid_axis("schedule=model|sigmas:1,0.5").values, ElementsAre("model", "sigmas:1,0.5"));
  EXPECT_THAT(parse_grid_axis("size=512x512,768").values, ElementsAre("512x512", "768"));
  EXPECT_EQ(parse_grid_axis("lora:a/ink_2.safetensors=0..1:0.5").label(1), "ink_2 0.5");
  EXPECT_EQ(parse_grid_axis("time_rounding=bfl").option, "time-rounding");
  EXPECT_EQ(parse_grid_axis("steps=4,8").label(1), "steps 8");
  EXPECT_EQ(parse_grid_axis("prompt=a fox").label(0), "a fox");
  EXPECT_EQ(parse_grid_axis("model=/a/b/klein.safetensors").label(0), "model klein.safetensors");
}

TEST(GridAxis, ReportsErrors) {
  const auto message = [](const char* text) {
    try {
      parse_grid_axis(text);
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return std::string();
  };
  EXPECT_THAT(message("steps"), HasSubstr("has no values"));
  EXPECT_THAT(message("stpes=4"), HasSubstr("did you mean steps?"));
  EXPECT_THAT(message("output=a,b"), HasSubstr("cannot be an axis"));
  EXPECT_THAT(message("steps=4,,8"), HasSubstr("empty value"));
  EXPECT_THAT(message("seed=9..1"), HasSubstr("upwards"));
  EXPECT_THAT(message("seed=1..100000"), HasSubstr("more than 256"));
  EXPECT_THAT(message("lora=style"), HasSubstr("lora:style=0,0.5,1"));
}

}  // namespace
}  // namespace flux2
