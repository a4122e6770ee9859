#include "train/log/run_log.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "image/write_image.h"
#include "train/log/event_file.h"
#include "train/log/output_names.h"
#include "train/log/step_figures.h"
#include "train/log/test_folder.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Json> lines_of(const fs::path& file) {
  std::vector<Json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(parse_json(line));
  return lines;
}

std::vector<int64_t> steps_of(const fs::path& file) {
  std::vector<int64_t> steps;
  for (const Json& line : lines_of(file))
    if (line["event"] == "step") steps.push_back(line["step"].get<int64_t>());
  return steps;
}

RunStart a_start() {
  RunStart s;
  s.model = "flux_2_klein_4b";
  s.modules = 80;
  s.parameters = 46202880;
  s.items = 12;
  s.batches_per_epoch = 2;
  s.epochs = 5;
  s.steps = 10;
  s.plan = RunStart::Plan{11.5, 3.25, 0.16};
  s.options = {{"learning_rate", 1e-4}, {"huggingface_token", "hf_secret"}, {"dit", "/home/me/model.safetensors"}, {"seed", 42}};
  return s;
}

RunStep a_step(int64_t step) {
  RunStep s;
  s.step = step;
  s.epoch = (step - 1) / 2 + 1;
  s.micro_in_epoch = (step - 1) % 2 * 2;
  s.losses = {0.5 / static_cast<double>(step), 0.25 / static_cast<double>(step)};
  s.samples = {{0.05, 0.4}, {0.55, 0.2}, {0.59, 0.4}, {1.0, 0.1}};
  s.lr = {{"unet", 1e-4}};
  s.grad_norm = 0.75;
  s.seconds = step == 1 ? 60 : 0.5;
  s.tokens = 1000;
  s.device_gib = 11.25;
  return s;
}

// The log of one process that trains steps first…last.
void train(const fs::path& folder, int64_t first, int64_t last, std::optional<int64_t> resumed,
           std::vector<Json>* events = nullptr) {
  RunLogOptions options;
  options.output_dir = folder;
  options.output_name = "cat";
  options.jsonl = folder / "mine.jsonl";
  options.resumed_step = resumed;
  options.report = false;
  if (events != nullptr) options.on_event = [events](const Json& event) { events->push_back(event); };
  RunLog log(std::move(options));
  log.start(a_start());
  for (int64_t step = first; step <= last; ++step) log.step(a_step(step));
}

TEST(LossWindow, IsTheMeanOfTheNewestLossOfEachPlaceInAnEpoch) {
  LossWindow window;
  EXPECT_EQ(window.average(), 0);
  window.record(0, 1);
  window.record(1, 3);
  EXPECT_EQ(window.average(), 2);
  window.record(2, 5);
  window.record(0, 4);  // the second epoch
  EXPECT_EQ(window.average(), 4);
  window.record(1, std::nan(""));
  EXPECT_EQ(window.average(), 4);
  LossWindow resumed(window.values());
  resumed.record(1, 6);
  EXPECT_EQ(resumed.average(), 5);
}

TEST(StepFigures, TheFirstStepDoesNotCountAsSpeed) {
  SpeedMeter meter;
  meter.add(60, 100);
  EXPECT_FALSE(meter.steps_per_s());
  meter.add(0.5, 100);
  meter.add(0.25, 100);
  EXPECT_DOUBLE_EQ(*meter.steps_per_s(), 2 / 0.75);
  EXPECT_DOUBLE_EQ(*meter.tokens_per_s(), 200 / 0.75);
}

TEST(RunLog, WritesTheObjectsOfTheSpecification) {
  const TestFolder folder;
  std::vector<Json> events;
  RunLogOptions options;
  options.output_dir = folder.path();
  options.output_name = "cat";
  options.on_event = [&](const Json& event) { events.push_back(event); };
  options.now = [] { return 1763266747.25; };
  RunLog log(std::move(options));
  log.start(a_start());
  log.step(a_step(1));
  log.step(a_step(2));
  log.epoch({2, 1});
  log.validation({2, 0.3, {{0.1, 0.5}, {0.9, 0.25}}});
  log.sample({2, 1, 0, folder / "sample" / "cat.png", "a \"cat\"\n<b>", 42});
  log.checkpoint({2, 1, folder / "cat-000001.safetensors", "ab", 123});
  log.state({2, 1, folder / "cat-000001-state"});
  log.removed({2, folder / "cat-000000.safetensors"});
  log.warning({2, "slow disk"});
  log.end({RunEndReason::Time, 2, ""});
  EXPECT_EQ(lines_of(folder / "cat.jsonl"), events) << "the console gets the same objects";

  Json start = events[0];
  EXPECT_EQ(
      start.dump(),
      R"({"event":"start","time":1763266747.25,"name":"cat","model":"flux_2_klein_4b","modules":80,"parameters":46202880,)"
      R"("items":12,"batches_per_epoch":2,"epochs":5,"steps":10,"plan":{"device_gib":11.5,"host_gib":3.25,"s_per_step":0.16},)"
      R"("options":{"learning_rate":0.0001,"seed":42}})");
  Json step = events[2];
  EXPECT_EQ(step["step"], 2);
  EXPECT_EQ(step["epoch"], 1);
  EXPECT_DOUBLE_EQ(step["loss"].get<double>(), 0.1875);
  EXPECT_DOUBLE_EQ(step["loss_avg"].get<double>(), (0.5 + 0.25 + 0.25 + 0.125) / 4);
  EXPECT_EQ(step["lr"].dump(), R"({"unet":0.0001})");
  EXPECT_EQ(step["grad_norm"], 0.75);
  EXPECT_DOUBLE_EQ(step["t_mean"].get<double>(), (0.05 + 0.55 + 0.59 + 1.0) / 4);
  EXPECT_EQ(step["it_per_s"], 2.0);
  EXPECT_EQ(step["tokens_per_s"], 2000.0);
  EXPECT_EQ(step["device_gib"], 11.25);
  EXPECT_EQ(step["eta_s"], 4.0);
  EXPECT_EQ(step["loss_by_t"].size(), 3u);
  EXPECT_DOUBLE_EQ(step["loss_by_t"]["50"].get<double>(), (0.2 + 0.4) / 2);
  EXPECT_EQ(step["loss_by_t"]["00"], 0.4);
  EXPECT_EQ(step["loss_by_t"]["90"], 0.1);
  EXPECT_TRUE(events[1]["it_per_s"].is_null());
  EXPECT_EQ(events[4].dump(), R"({"event":"validation","time":1763266747.25,"step":2,"loss":0.3,"by_t":{"0.1":0.5,"0.9":0.25}})");
  EXPECT_EQ(events[5]["file"], "sample/cat.png");
  EXPECT_EQ(
      events[6].dump(),
      R"({"event":"checkpoint","time":1763266747.25,"step":2,"epoch":1,"file":"cat-000001.safetensors","sha256":"ab","bytes":123})");
  EXPECT_EQ(events.back()["reason"], "time");
  EXPECT_THAT(read_text_file(folder / "cat.jsonl"), Not(HasSubstr("hf_secret")));
  EXPECT_TRUE(fs::exists(folder / "report.html"));
}

TEST(RunLog, AResumedRunDropsLaterLines) {
  const TestFolder folder;
  train(folder.path(), 1, 5, {});
  std::ofstream(folder / "cat.jsonl", std::ios::app) << R"({"event":"step","step":6,"lo)";  // killed while it wrote
  train(folder.path(), 4, 7, 3);
  EXPECT_THAT(steps_of(folder / "cat.jsonl"), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(steps_of(folder / "mine.jsonl"), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  // Back behind the first resumption: its start is about later steps, too.
  train(folder.path(), 3, 3, 2);
  EXPECT_THAT(steps_of(folder / "cat.jsonl"), ElementsAre(1, 2, 3));
  std::vector<Json> starts;
  for (const Json& line : lines_of(folder / "cat.jsonl"))
    if (line["event"] == "start") starts.push_back(line.value("resumed_step", Json(-1)));
  EXPECT_THAT(starts, ElementsAre(-1, 2));
  train(folder.path(), 1, 1, {});
  EXPECT_THAT(steps_of(folder / "cat.jsonl"), ElementsAre(1));
  train(folder / "new", 4, 5, 3);  // the log of the earlier part is gone
  EXPECT_THAT(steps_of(folder / "new" / "cat.jsonl"), ElementsAre(4, 5));
}

TEST(RunHistory, NeverShowsAStepTwice) {
  const TestFolder folder;
  {
    std::ofstream file(folder / "a.jsonl");
    file << R"({"event":"start","steps":10})" << '\n';
    for (const int step : {1, 2, 3, 4, 3, 4, 5})
      file << fmt::format(R"({{"event":"step","step":{},"loss":{}}})", step, step * 0.5) << '\n';
    file << "not json\n[1]\n{\"event\":5}\n"
         << R"({"event":"step","step":"x","loss":"y"})"
         << "\n";
    file << R"({"event":"warning","step":5,"text":"hot"})" << '\n' << R"({"event":"start","resumed_step":2})" << '\n';
    file << R"({"event":"step","step":3,"loss":9,"loss_by_t":{"70":0.5,"x":1,"950":2}})" << '\n'
         << R"({"event":"step","step":4,"loss":9)";
  }
  const RunHistory history = read_history(folder / "a.jsonl");
  std::vector<int64_t> steps;
  for (const auto& s : history.steps) steps.push_back(s.step);
  EXPECT_THAT(steps, ElementsAre(0, 3)) << "a line without a step counts as step 0 and replaces what follows";
  EXPECT_EQ(history.steps.back().loss, 9);
  EXPECT_EQ(history.steps.back().by_t[7], 0.5f);
  EXPECT_TRUE(history.warnings.empty());
  EXPECT_EQ(history.starts, 2);
  std::ofstream(folder / "b.jsonl") << "hello\n";
  EXPECT_THROW(read_history(folder / "b.jsonl"), Error);
}

TEST(RunLog, LogsThatCannotBeWrittenDoNotStopTraining) {
  const TestFolder folder;
  std::vector<std::string> warnings;
  RunLogOptions options;
  options.output_dir = folder.path();
  options.output_name = "cat";
  options.logging_dir = folder / "logs";
  options.log = Log([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  RunLog log(std::move(options));
  log.start(a_start());
  log.sample({1, 1, 0, folder / "missing.png", "x", 1});
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_NO_THROW(log.step(a_step(1)));
  EXPECT_THROW(RunLog(RunLogOptions{.output_dir = folder.path(), .output_name = "a/b"}), Error);
}

// Where the specification says which tags exist.
TEST(RunLog, TensorBoardGetsItsTags) {
  const TestFolder folder;
  RunLogOptions options;
  options.output_dir = folder.path();
  options.output_name = "cat";
  options.logging_dir = folder / "logs";
  options.log_prefix = "p_";
  options.log_config = true;
  options.now = [] { return 1763266747.5; };
  RunLog log(std::move(options));
  save_image(folder / "cat.png", encode_png(Image(8, 4, 3)));
  log.start(a_start());
  RunStep step = a_step(1);
  step.d_lr = {{"unet", 0.5}};
  step.ema_decay = 0.99;
  step.host_gib = 2;
  step.norm_limit = RunStep::NormLimit{3, 0.5, 1};
  log.step(step);
  log.step(a_step(2));
  log.epoch({2, 1});
  log.validation({2, 0.3, {{0.1, 0.5}}});
  log.sample({2, 1, 5, folder / "cat.png", "x", 1});
  EXPECT_EQ(log.event_file_path().parent_path(), folder / "logs" / ("p_" + compact_time(1763266747)) / "network_train");
  const std::string bytes = read_text_file(log.event_file_path());
  EXPECT_THAT(bytes, HasSubstr(scalar_event({1763266747.5, 1}, "loss/current", 0.375f)));
  EXPECT_THAT(bytes, HasSubstr(scalar_event({1763266747.5, 1}, "loss/epoch", 0.28125f)));
  EXPECT_THAT(bytes, HasSubstr(scalar_event({1763266747.5, 2}, "loss/epoch_by_step", 0.28125f)));
  EXPECT_THAT(bytes, HasSubstr(scalar_event({1763266747.5, 2}, "loss/validation_t100", 0.5f)));
  for (const char* tag :
       {"loss/average", "lr/unet", "lr/d*lr/unet", "grad/norm", "loss/t_00", "loss/t_50", "loss/t_90", "speed/it_per_s",
        "speed/tokens_per_s", "memory/device_gib", "memory/host_gib", "ema/decay", "max_norm/keys_scaled",
        "max_norm/average_key_norm", "max_norm/max_key_norm", "loss/validation", "sample/5", "config/text_summary"})
    EXPECT_THAT(bytes, HasSubstr(tag));
  EXPECT_THAT(bytes, Not(HasSubstr("hf_secret")));
}

}  // namespace
}  // namespace flux2
