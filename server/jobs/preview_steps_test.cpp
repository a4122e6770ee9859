#include "server/jobs/preview_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flux2 {
namespace {

using testing::ElementsAre;

TEST(PreviewSteps, AreSpreadOverTheStepsBeforeTheLast) {
  EXPECT_THAT(preview_steps(2, 4), ElementsAre(1, 3));
  EXPECT_THAT(preview_steps(3, 20), ElementsAre(5, 10, 15));
  EXPECT_THAT(preview_steps(3, 2), ElementsAre(1));
  EXPECT_THAT(preview_steps(3, 1), ElementsAre());
  EXPECT_THAT(preview_steps(0, 9), ElementsAre());
}

TEST(PreviewSteps, AJobSaysWhichItWants) {
  const auto wanted = [](const Json& request, int steps) {
    std::vector<int> list;
    for (int step = 1; step <= steps; ++step)
      if (wants_preview(request, step, steps)) list.push_back(step);
    return list;
  };
  EXPECT_THAT(wanted(Json::object(), 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(wanted({{"preview", "full"}}, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(wanted({{"preview", {{"mode", "full"}, {"count", 2}}}}, 8), ElementsAre(3, 5));
  EXPECT_THAT(wanted({{"preview", {{"every", 4}}}}, 10), ElementsAre(4, 8, 10));
}

}  // namespace
}  // namespace flux2
