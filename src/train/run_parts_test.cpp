#include "train/run_parts.h"

#include <gmock/gmock.h>

#include "train/log/test_folder.h"
#include "train/run_settings.h"

namespace flux2 {
namespace {

// A state of `ranks` processes with `micro` batches each behind it in this epoch, and where a run of `now` processes goes on.
struct Continued {
  int64_t micro = 0;
  std::string warning;
};
Continued continued(int64_t ranks, int64_t micro, int64_t now) {
  const TestFolder folder;
  RunParts parts;
  parts.optimiser = make_optimiser("sgd", {}, {});
  TrainState saved;
  saved.step = 5;
  saved.micro_in_epoch = micro;
  saved.ranks = ranks;
  saved.options = train_options_json(parts.options);
  saved.dataset_hash = "abc";
  saved.optimizer.scalars = flat_scalars(parts.optimiser->scalars());
  write_state(folder / "x-state", saved, {});
  Continued result;
  parts.ranks = now;
  parts.resume_from({.folder = folder / "x-state",
                     .dataset_hash = "abc",
                     .base = {},
                     .restore = [](const NamedTensors&) {},
                     .log = Log([&](LogLevel level, const std::string& text) {
                       if (level == LogLevel::Warning) result.warning = text;
                     })});
  EXPECT_EQ(parts.step, 5);
  result.micro = parts.micro;
  return result;
}

TEST(RunParts, AnotherNumberOfProcessesGoesOnAtTheSameBatch) {
  EXPECT_EQ(continued(1, 6, 1).micro, 6);
  EXPECT_EQ(continued(1, 6, 2).micro, 3);
  EXPECT_EQ(continued(2, 3, 1).micro, 6);
  EXPECT_EQ(continued(2, 3, 3).micro, 2);
  EXPECT_EQ(continued(2, 3, 3).warning, "");
  EXPECT_EQ(continued(0, 6, 2).micro, 6) << "an older program did not say it";
  const Continued rest = continued(1, 5, 3);
  EXPECT_EQ(rest.micro, 1);
  EXPECT_THAT(rest.warning, testing::HasSubstr("2 of the 5 batches that this epoch has behind it are computed again"));
}

}  // namespace
}  // namespace flux2
