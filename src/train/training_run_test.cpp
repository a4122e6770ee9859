// Whole runs of a tiny model in this process: what they write, and how they end.
#include "train/training_run.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <new>
#include <utility>

#include "backend/cpu/cpu_stream.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"
#include "train/log/output_names.h"
#include "train/log/state_folder.h"
#include "train/log/test_folder.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::HasSubstr;

std::vector<float> wave_values(int64_t count, double phase) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + phase));
  return values;
}

// Memory that is short in the moment that a test chooses.
struct ShortMemory : CpuStream {
  using CpuStream::CpuStream;

  std::shared_ptr<void> allocate(size_t bytes) override {
    if (std::exchange(fails_once, false)) fail(ErrorCode::OutOfMemory, "{} bytes cannot be allocated", bytes);
    return CpuStream::allocate(bytes);
  }

  bool fails_once = false;
};

class Runs : public testing::Test {
 protected:
  Runs() {
    options.network_dim = 2;
    options.learning_rate = 1e-3;
    options.seed = 7;
    options.output_dir = folder.path().string();
    options.output_name = "toy";
    DatasetConfig config;
    config.resolution = {32, 32};
    std::vector<CachedItem> items(4);
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].stem = std::to_string(i);
      items[i].size = {2, 2};
    }
    const int64_t width = random->models.transformer.config().text_width;
    data.emplace(std::vector<DatasetConfig>{config}, CacheModel{"f2xtiny", "flux_2_custom_tiny", 4, width}, std::move(items),
                 [this, width](const BatchPlan& plan) {
                   if (plan.samples[0].index >= broken_from) throw Error(ErrorCode::BadFile, "the image is damaged");
                   LoadedBatch batch;
                   batch.plan = plan;
                   const auto item = static_cast<double>(plan.samples[0].item);
                   batch.latents = wave_values(kLatentChannels * plan.size.tokens(), item);
                   batch.text_length = 4;
                   batch.text_width = width;
                   batch.text = wave_values(4 * width, item + 0.5);
                   batch.loss_multiplier = {1};
                   return batch;
                 });
  }

  TrainingInputs inputs() {
    TrainingInputs in;
    session = engine.open_session(random);
    in.network = std::make_shared<Flux2Transformer>(*session->models.transformer.get());
    in.stream = session->stream;
    in.data = &*data;
    in.on_event = [this](const Json& event) { events.push_back(event); };
    in.log = Log([this](LogLevel, const std::string& text) { notes += text + "\n"; });
    return in;
  }
  RunEnd run() { return TrainingRun(inputs(), options).run(); }
  std::string error_of_run() {
    try {
      run();
    } catch (const std::exception& e) {
      return e.what();
    }
    return "no error";
  }

  bool exists(const std::string& name) const { return fs::exists(folder / name); }
  std::map<std::string, std::vector<float>> values(const std::string& name) const {
    std::map<std::string, std::vector<float>> all;
    const auto file = open_weights(folder / name);
    for (const StoredTensor& t : file->tensors()) all[t.name] = file->open(t.name).to_floats();
    return all;
  }
  std::string metadata(const std::string& name, const std::string& key) const {
    return open_weights(folder / name)->metadata().at(key);
  }
  std::vector<double> rates() const {
    std::vector<double> all;
    for (const Json& event : events)
      if (event["event"] == "step") all.push_back(event["lr"]["unet"].get<double>());
    return all;
  }

  TestFolder folder;
  Engine engine{{.device = "cpu", .threads = 2, .profile = Profile::Exact}};
  std::shared_ptr<const LoadedModel> random = engine.random_model("tiny", {.text_encoder = false, .vae = false});
  std::unique_ptr<ModelSession> session;
  std::optional<TrainingSet> data;
  std::atomic<uint64_t> broken_from = ~uint64_t{0};  // samples from this one on cannot be loaded
  TrainOptions options;
  std::vector<Json> events;
  std::string notes;
};

TEST_F(Runs, AnErrorSavesWhatWasDone) {
  options.max_train_steps = 7;
  options.ema_decay = 0.9;
  run();
  const auto whole = values("toy.safetensors"), whole_average = values("toy-ema.safetensors");

  options.output_name = "parts";
  broken_from = 6;
  EXPECT_THAT(error_of_run(), HasSubstr("damaged"));
  EXPECT_TRUE(exists("parts-step00000006.safetensors"));
  EXPECT_FALSE(exists("parts.safetensors"));
  EXPECT_EQ(events.back()["event"], "end");
  EXPECT_EQ(events.back()["reason"], "error");
  broken_from = ~uint64_t{0};
  options.resume = "";
  EXPECT_EQ(run().reason, RunEndReason::Done);
  EXPECT_EQ(values("parts.safetensors"), whole);
  EXPECT_EQ(values("parts-ema.safetensors"), whole_average);
}

// Also one that is not ours, and while other weights are in place of those that are trained.
TEST_F(Runs, AnyErrorSavesWhatWasDone) {
  options.max_train_steps = 4;
  options.optimizer_type = "adamwschedulefree";
  run();
  const auto whole = values("toy.safetensors");

  options.output_name = "parts";
  options.sample_prompts = "prompts.txt";
  options.sample_every_n_steps = 2;
  TrainingInputs in = inputs();
  in.make_samples = [](const SampleMoment&, const std::shared_ptr<const Flux2Transformer>&) -> std::vector<RunSample> {
    throw std::bad_alloc();
  };
  EXPECT_THROW(TrainingRun(std::move(in), options).run(), std::bad_alloc);
  EXPECT_EQ(events.back()["reason"], "error");
  options.sample_every_n_steps.reset();
  options.resume = "";
  EXPECT_EQ(run().reason, RunEndReason::Done);
  EXPECT_EQ(values("parts.safetensors"), whole);
}

// The averages stay in the place of the weights that are trained, so neither training nor a file may go on with them.
TEST_F(Runs, WeightsThatCannotBeBroughtBackEndTheRunAndAreNotSaved) {
  options.max_train_steps = 4;
  options.ema_decay = 0.9;
  options.ema_sample = true;
  options.sample_prompts = "prompts.txt";
  options.sample_every_n_steps = 2;
  options.save_state = true;
  TrainingInputs in = inputs();
  const auto memory = std::make_shared<ShortMemory>(std::static_pointer_cast<CpuDevice>(engine.device().shared_from_this()));
  in.stream = memory;
  in.make_samples = [&](const SampleMoment&, const std::shared_ptr<const Flux2Transformer>&) {
    memory->fails_once = true;
    return std::vector<RunSample>();
  };
  EXPECT_THROW(TrainingRun(std::move(in), options).run(), Error);
  EXPECT_FALSE(memory->fails_once) << "it was the exchange that failed";
  EXPECT_EQ(events.back()["event"], "end");
  EXPECT_EQ(events.back()["reason"], "error");
  EXPECT_EQ(events.back()["step"], 2);
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_FALSE(entry.path().extension() == ".safetensors" || entry.path().string().ends_with("-state")) << entry.path();
}

TEST_F(Runs, AnErrorBeforeTheFirstStepSavesNothing) {
  options.max_train_steps = 4;
  broken_from = 0;
  EXPECT_THAT(error_of_run(), HasSubstr("damaged"));
  EXPECT_FALSE(exists("toy-step00000000.safetensors"));
  EXPECT_EQ(events.back()["reason"], "error");
}

// Each kind of file has its own rules of retention.
TEST_F(Runs, AStepWithTwoReasonsToSaveHasBothFiles) {
  options.max_train_steps = 12;
  options.save_every_n_steps = 4;  // the epochs have four steps
  options.save_every_n_epochs = 1;
  options.save_last_n_steps = 1;
  options.save_state = true;
  run();
  EXPECT_TRUE(exists("toy-000001.safetensors"));
  EXPECT_TRUE(exists("toy-000002.safetensors"));
  EXPECT_TRUE(exists("toy-000001-state/state.json"));
  EXPECT_FALSE(exists("toy-step00000004.safetensors")) << "removed by its own rule";
  EXPECT_TRUE(exists("toy-step00000008.safetensors"));
  EXPECT_TRUE(exists("toy.safetensors"));
}

TEST_F(Runs, AnInterruptionInTheLastStepComesTooLate) {
  options.max_train_steps = 3;
  TrainingInputs in = inputs();
  in.stop = [calls = 0]() mutable { return ++calls == 3 ? StopRequest::End : StopRequest::None; };
  EXPECT_EQ(TrainingRun(std::move(in), options).run().reason, RunEndReason::Done);
  EXPECT_TRUE(exists("toy.safetensors"));
  EXPECT_FALSE(exists("toy-step00000003.safetensors"));

  options.output_name = "sampled";
  options.sample_prompts = "prompts.txt";
  options.sample_every_n_steps = 3;
  in = inputs();
  in.make_samples = [](const SampleMoment&, const std::shared_ptr<const Flux2Transformer>&) -> std::vector<RunSample> {
    throw Error(ErrorCode::Cancelled, "stopped");
  };
  EXPECT_EQ(TrainingRun(std::move(in), options).run().reason, RunEndReason::Done);
  EXPECT_TRUE(exists("sampled.safetensors"));
}

TEST_F(Runs, AScheduleFreeOptimiserHasNoSchedule) {
  options.max_train_steps = 3;
  options.optimizer_type = "adamwschedulefree";
  options.lr_scheduler = "linear";
  run();
  EXPECT_EQ(rates(), std::vector<double>(3, options.learning_rate));
  options.output_name = "other";
  options.lr_scheduler = "constant";
  run();
  EXPECT_EQ(values("other.safetensors"), values("toy.safetensors"));
}

TEST_F(Runs, AnOptimiserThatChoosesItsRateShowsIt) {
  options.max_train_steps = 2;
  options.optimizer_type = "adafactor";
  run();
  ASSERT_EQ(rates().size(), 2u);
  EXPECT_THAT(rates(), Each(testing::DoubleNear(1e-2, 1e-9)));
  EXPECT_EQ(metadata("toy.safetensors", "ss_learning_rate"), "None");
  EXPECT_EQ(metadata("toy.safetensors", "ss_lr_scheduler"), "adafactor:0.001");
}

// Its own states are those of a run from nothing, so they need no option.
TEST_F(Runs, AStateOfMusubiTunerIsOnlyAStart) {
  options.max_train_steps = 1;
  run();
  fs::create_directories(folder / "musubi");
  fs::copy_file(folder / "toy.safetensors", folder / "musubi/model.safetensors");
  std::ofstream(folder / "musubi/optimizer.bin") << "x";

  options.output_name = "next";
  options.resume = (folder / "musubi").string();
  options.save_state_on_train_end = true;
  run();
  EXPECT_THAT(notes, HasSubstr("is a state of musubi-tuner"));
  options.resume = "";
  options.max_train_steps = 2;
  EXPECT_EQ(run().step, 2);
}

TEST_F(Runs, AStateOfAnotherModelIsRefused) {
  options.max_train_steps = 1;
  options.save_state_on_train_end = true;
  const auto run_on = [&](const char* model) {
    TrainingInputs in = inputs();
    in.base = {{"model", model}, {"quant", "none"}};
    return TrainingRun(std::move(in), options).run().step;
  };
  run_on("one.safetensors 100");
  options.max_train_steps = 2;
  options.resume = "";
  try {
    run_on("two.safetensors 100");
    ADD_FAILURE() << "the state was taken";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("model was one.safetensors 100 and is now two.safetensors 100"));
  }
  EXPECT_EQ(run_on("one.safetensors 100"), 2);
}

}  // namespace
}  // namespace flux2
