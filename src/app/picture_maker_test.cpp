// A request made, run and read back through the application layer alone, as any front end does it.
#include "app/picture_maker.h"
#include "record/field_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "app/adapters.h"
#include "app/model_keeper.h"
#include "app/picture_writer.h"
#include "app/prepare.h"
#include "base/error.h"
#include "record/picture_metadata.h"
#include "tests/support/paths.h"
#include "weights/quantised_cache.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class MakePictures : public testing::Test {
 protected:
  MakePictures() {
    fs::create_directories(folder_);
    context_.environment = [this](const char* name) -> const char* {
      const std::string_view wanted(name);
      return wanted == "FLUX2_HOME" ? home_.c_str() : wanted == "FLUX2_BUNDLED" ? bundled_.c_str() : nullptr;
    };
    context_.log = Log([this](LogLevel level, const std::string& text) {
      if (level == LogLevel::Warning) warnings_.push_back(text);
    });
    spec_.prompt = "a red circle on a white background";
    spec_.seed = 7;
    spec_.steps = 2;
    spec_.device = "cpu";
    spec_.output = (folder_ / "circle.png").string();
  }
  ~MakePictures() override { fs::remove_all(folder_); }

  // The latents of the image that `spec_` asks for, as a new start of the program makes them.
  std::vector<float> latents() const {
    const ModelFiles model = choose_model(spec_, context_);
    const ResolvedRequest request = resolve(spec_, model);
    PictureMaker maker(context_, model, spec_);
    maker.load({&request, 1});
    std::vector<float> made;
    maker.make(request, [&](const Picture& picture, const GenerationRecord&) { made = picture.latents; });
    return made;
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("app-" + std::to_string(::getpid()));
  std::string home_ = (folder_ / "home").string(), bundled_ = test::pico_folder();
  AppContext context_;
  RequestSpec spec_;
  std::vector<std::string> warnings_;
};

TEST_F(MakePictures, ThroughTheApplicationLayerAlone) {
  const ModelFiles model = choose_model(spec_, context_);
  EXPECT_TRUE(model.bundled);
  const ResolvedRequest request = resolve(spec_, model, Task::Generate, context_.log);
  EXPECT_EQ(request.request.width, 128);
  PictureMaker maker(context_, model, spec_);
  maker.load({&request, 1});
  PictureWriter writer(request.spec);
  writer.expect(request.output(), 1);
  writer.check_targets({});
  int steps = 0;
  Progress progress;
  progress.report = [&](Phase phase, int step, int) { steps += phase == Phase::Denoise && step > 0; };
  fs::path path;
  maker.make(
      request,
      [&](const Picture& picture, GenerationRecord record) {
        path = writer.write(picture, std::move(record), request.output()).path;
      },
      progress);
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(path, folder_ / "circle.png");

  const auto found = find_record(read_metadata(path));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record.prompt(), *spec_.prompt);
  EXPECT_EQ(found->record.seed(), 7u);
  EXPECT_EQ(found->record.model, "pico");
  EXPECT_EQ(found->record.request.steps, 2);
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();

  // The record resolves to the same request again.
  RequestSpec again = spec_of_record(found->record);
  EXPECT_EQ(to_json(resolve(again, model).record)["seed"], to_json(request.record)["seed"]);
  EXPECT_EQ(spec_to_json(resolve(again, model).record.request), spec_to_json(request.record.request));
}

TEST_F(MakePictures, AModelIsKeptForRequestsThatShareIt) {
  const ModelFiles model = choose_model(spec_, context_);
  ModelKeeper keeper(context_);
  const ResolvedRequest request = resolve(spec_, model);
  const PictureMaker* first = &keeper.maker_for(spec_, model, {&request, 1});
  RequestSpec other = spec_;
  other.steps = 3;
  other.prompt = "a blue square";
  EXPECT_EQ(&keeper.maker_for(other, model, {&request, 1}), first);
  other.profile = "exact";
  EXPECT_NE(ModelKeeper::key_of(other, model), ModelKeeper::key_of(spec_, model));
}

TEST_F(MakePictures, SwappingTheAutoencoderKeepsTheTransformer) {
  ModelFiles model = choose_model(spec_, context_);
  ModelKeeper keeper(context_);
  const ResolvedRequest request = resolve(spec_, model);
  PictureMaker& maker = keeper.maker_for(spec_, model, {&request, 1});
  const auto transformer = maker.session().model->models.transformer.get();
  const auto vae = maker.session().model->models.vae;
  const fs::path copy = folder_ / "vae";
  fs::copy(model.vae, copy, fs::copy_options::recursive);
  model.vae = copy;
  EXPECT_EQ(&keeper.maker_for(spec_, model, {&request, 1}), &maker);
  EXPECT_EQ(maker.session().model->models.transformer.get(), transformer);
  EXPECT_NE(maker.session().model->models.vae, vae);
  int made = 0;
  maker.make(request, [&](const Picture&, const GenerationRecord&) { ++made; });
  EXPECT_EQ(made, 1);
}

TEST_F(MakePictures, PromptLinesPresetsAndStylesBecomeRequests) {
  Settings settings;
  settings.add({{"preset", {{"draft"}, "test"}}, {"style", {{"photo"}, "test"}}, {"batch", {{"2"}, "test"}}});
  settings.add(layer_of(spec_, "test"));
  std::vector<PromptLine> lines = parse_prompt_file("a fox --d 5\na {cat|dog} --s 3\n");
  const PreparedRun run = prepare(settings, lines, Task::Generate, context_);
  ASSERT_EQ(run.requests.size(), 3u) << "wildcards make requests of one image";
  EXPECT_EQ(run.requests[0].request.batch, 2);
  EXPECT_EQ(run.requests[0].request.seed, 5u);
  EXPECT_EQ(run.requests[0].request.steps, 10) << "half of pico's 20, above the lower layer's 2";
  EXPECT_EQ(run.requests[0].request.prompt.rfind("photograph of a fox", 0), 0u);
  EXPECT_EQ(run.requests[1].request.steps, 3);
  EXPECT_EQ(run.requests[2].request.seed, 8u);
  EXPECT_EQ(run.requests[2].request.prompt.find('{'), std::string::npos);
}

TEST_F(MakePictures, RejectsATaskWithoutItsImage) {
  const ModelFiles model = choose_model(spec_, context_);
  EXPECT_THROW(resolve(spec_, model, Task::Edit), Error);
  EXPECT_THROW(resolve(spec_, model, Task::Inpaint), Error);
}

// The second start maps what the first one quantised, and makes the same image.
TEST_F(MakePictures, QuantisedWeightsAreKeptForTheNextStart) {
  const auto entries = [&] { return list_quantised(quant_cache_folder(context_)); };
  for (const std::string quant : {"int8", "q8_0"}) {
    spec_.quant = quant;
    spec_.quant_cache = "off";
    const auto without = latents();
    EXPECT_TRUE(entries().empty());
    spec_.quant_cache.reset();
    EXPECT_EQ(latents(), without);
    EXPECT_TRUE(entries().empty()) << "a small model is not worth it";
    EXPECT_TRUE(warnings_.empty());

    spec_.quant_cache = "1";
    EXPECT_EQ(latents(), without);
    ASSERT_EQ(entries().size(), 2u) << "transformer and text encoder";
    EXPECT_EQ(warnings_.size(), 1u) << "said once";
    EXPECT_EQ(latents(), without);
    EXPECT_EQ(warnings_.size(), 1u) << "nothing was written again";

    const auto damaged = entries()[0];
    fs::resize_file(damaged.path, damaged.bytes / 2);
    EXPECT_EQ(latents(), without);
    EXPECT_EQ(entries().size(), 2u);
    EXPECT_EQ(fs::file_size(damaged.path), damaged.bytes) << "made again";
    fs::remove_all(quant_cache_folder(context_));
    warnings_.clear();
  }
}

TEST_F(MakePictures, StoredTextStatesBelongToTheQuantisationOfTheTextEncoder) {
  spec_.steps = 1;
  const auto plain = latents();
  spec_.text_cache = 1;
  spec_.quant_text_encoder = "q4_0";
  EXPECT_NE(latents(), plain);
  spec_.quant_text_encoder.reset();
  EXPECT_EQ(latents(), plain);
}

TEST_F(MakePictures, AModelLoadedToDecodeLatentsDoesNotServeOtherRequests) {
  const ModelFiles model = choose_model(spec_, context_);
  RequestSpec decodes = spec_;
  decodes.latent_path = {"saved.safetensors"};
  EXPECT_NE(ModelKeeper::key_of(decodes, model), ModelKeeper::key_of(spec_, model));
}

TEST_F(MakePictures, StepsThatCanBeForetoldAreLeftOut) {
  spec_.steps = 30;
  spec_.cfg = 2.5;  // at a higher guidance the velocity of pico changes more from step to step
  spec_.batch = 2;
  const ModelFiles model = choose_model(spec_, context_);
  PictureMaker maker(context_, model, spec_);
  const auto made = [&](const RequestSpec& spec) {
    const ResolvedRequest request = resolve(spec, model, Task::Generate, context_.log);
    if (!maker.is_loaded()) maker.load({&request, 1});
    std::vector<std::pair<Picture, GenerationRecord>> images;
    maker.make(request,
               [&](const Picture& picture, GenerationRecord record) { images.emplace_back(picture, std::move(record)); });
    return images;
  };
  const auto full = made(spec_);
  EXPECT_EQ(to_json(full[0].second)["cache"], "off");
  spec_.cache = "auto";
  const auto cached = made(spec_);
  for (size_t k = 0; k < 2; ++k) {
    const GenerationRecord record = record_from_json(to_json(cached[k].second));
    EXPECT_EQ(record.step_cache.steps, 30);
    EXPECT_LT(record.step_cache.computed, 30 / 1.5);
    EXPECT_LT(record.step_cache.error, 0.1);
    EXPECT_EQ(record.request.cache, "auto");
    const Planes &a = full[k].first.decoded.planes(), &b = cached[k].first.decoded.planes();
    double squares = 0;
    for (size_t i = 0; i < a.values.size(); ++i)
      squares += std::pow(std::clamp(a.values[i], -1.0f, 1.0f) - std::clamp(b.values[i], -1.0f, 1.0f), 2);
    EXPECT_GT(10 * std::log10(4 * static_cast<double>(a.values.size()) / squares), 30) << "dB";
  }
  // Which steps are left out does not depend on the other images of a batch.
  spec_.batch = 1;
  spec_.seed = *spec_.seed + 1;
  EXPECT_EQ(made(spec_)[0].first.latents, cached[1].first.latents);
}

TEST_F(MakePictures, AFewStepsAreAllComputed) {
  spec_.cache = "auto";
  const ModelFiles model = choose_model(spec_, context_);
  EXPECT_EQ(resolve(spec_, model, Task::Generate, context_.log).request.cache_tolerance, 0);
  EXPECT_THAT(warnings_, testing::ElementsAre(testing::HasSubstr("8 steps")));
  spec_.steps = 20;
  spec_.sampler = "heun";
  EXPECT_THROW(resolve(spec_, model, Task::Generate, context_.log), Error);
}

}  // namespace
}  // namespace flux2
