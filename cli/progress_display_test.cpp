#include "cli/progress_display.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(ProgressLine, ShowsStepsSpeedAndTimeLeft) {
  EXPECT_EQ(progress_line(Phase::Denoise, 2, 4, 1.0), "denoise 2/4  ▇▇▁▁ 0.50 s/step  ETA 1.0 s");
  EXPECT_EQ(progress_line(Phase::Denoise, 0, 4, 0.0), "denoise 0/4  ▁▁▁▁");
  EXPECT_EQ(progress_line(Phase::Text, 0, 1, 0.0), "text");
  EXPECT_EQ(progress_line(Phase::Load, 1, 3, 0.2), "load 1/3");
}

TEST(ProgressDisplay, CountsTheTimeOfEachPhase) {
  Settings settings;
  settings.add({{"progress", {{"off"}, "--progress"}}});
  Console console;
  console.configure(settings, [](const char*) -> const char* { return nullptr; });
  ProgressDisplay display(console);
  const ProgressDisplay::Clock::time_point start{std::chrono::seconds(1000)};
  display.at(Phase::Text, 0, 1, start);
  display.at(Phase::Text, 1, 1, start + std::chrono::seconds(2));
  display.at(Phase::Denoise, 0, 2, start + std::chrono::seconds(3));
  display.at(Phase::Denoise, 1, 2, start + std::chrono::seconds(5));
  display.at(Phase::Denoise, 2, 2, start + std::chrono::seconds(8));
  EXPECT_DOUBLE_EQ(display.seconds_in(Phase::Text), 2);
  EXPECT_DOUBLE_EQ(display.seconds_in(Phase::Denoise), 5);
  // The same phase again, for something else: the time between belongs to neither.
  display.at(Phase::Denoise, 1, 4, start + std::chrono::seconds(40));
  display.at(Phase::Denoise, 4, 4, start + std::chrono::seconds(41));
  EXPECT_DOUBLE_EQ(display.seconds_in(Phase::Denoise), 6);
}

}  // namespace
}  // namespace flux2
