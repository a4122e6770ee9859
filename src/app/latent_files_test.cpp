#include "app/latent_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "app/resolve.h"
#include "base/error.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LatentFiles : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static Picture picture() {
    Picture made{.seed = 7, .rows = 2, .columns = 3};
    for (int i = 0; i < 128 * 2 * 3; ++i) made.latents.push_back(static_cast<float>(i) / 64);
    return made;
  }
  static GenerationRecord record() {
    GenerationRecord record;
    record.model = "pico";
    record.request.prompt = "a fox";
    record.request.seed = 7;
    record.request.steps = 4;
    record.request.guidance = 2.5;
    return record;
  }
  std::string failure(const fs::path& path) const {
    try {
      read_latents(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("latents-" + std::to_string(::getpid()));
  fs::path path_ = folder_ / "x.safetensors";
};

TEST_F(LatentFiles, ComeBackWithTheirRecord) {
  save_latents(path_, picture(), record(), {});
  const SavedLatents saved = read_latents(path_);
  EXPECT_EQ(saved.latents.shape(), (Shape{128, 2, 3}));
  EXPECT_EQ(saved.latents.to_floats(), picture().latents);
  EXPECT_EQ(saved.width(), 48);
  EXPECT_EQ(saved.height(), 32);
  EXPECT_EQ(saved.record.prompt(), "a fox");
  EXPECT_EQ(saved.record.model, "pico");
}

// A record names the size of the first pass, and the latents are those of the last one.
TEST_F(LatentFiles, OfHiresImagesKeepTheRecordedSize) {
  GenerationRecord enlarged = record();
  enlarged.request.hires = 2;
  enlarged.request.width = 24, enlarged.request.height = 16;
  save_latents(path_, picture(), enlarged, {});
  const ResolvedRequest decoded = resolve_latents({}, path_.string());
  EXPECT_EQ(decoded.request.width, 48);
  EXPECT_EQ(decoded.request.height, 32);
  EXPECT_EQ(decoded.record.width(), 24);
  EXPECT_EQ(decoded.record.height(), 16);
  save_latents(path_, picture(), record(), {});
  EXPECT_EQ(resolve_latents({}, path_.string()).record.width(), 48);
}

TEST_F(LatentFiles, AreWhatMusubiTunerWrites) {
  save_latents(path_, picture(), record(), {});
  const auto source = open_weights(path_);
  ASSERT_TRUE(source->find("latent"));
  const auto& texts = source->metadata();
  EXPECT_EQ(texts.at("seeds"), "7");
  EXPECT_EQ(texts.at("prompt"), "a fox");
  EXPECT_EQ(texts.at("height"), "32");
  EXPECT_EQ(texts.at("width"), "48");
  EXPECT_EQ(texts.at("infer_steps"), "4");
  EXPECT_EQ(texts.at("embedded_cfg_scale"), "2.5");

  // Files of musubi-tuner have no record of flux2; in batch mode they have one more axis.
  const std::vector<float> values = picture().latents;
  save_tensors(path_, {{"latent", Tensor::host_copy(values.data(), DType::F32, {1, 128, 2, 3})}},
               {{"seeds", "12"}, {"prompt", "a cat"}, {"infer_steps", "4"}, {"guidance_scale", "None"}});
  const SavedLatents theirs = read_latents(path_);
  EXPECT_EQ(theirs.latents.shape(), (Shape{128, 2, 3}));
  EXPECT_EQ(theirs.record.seed(), 12u);
  EXPECT_EQ(theirs.record.prompt(), "a cat");
  EXPECT_FALSE(theirs.record.request.cfg);
}

TEST_F(LatentFiles, SayNothingWhereThatIsAskedFor) {
  save_latents(path_, picture(), record(), {.is_private = true});
  EXPECT_FALSE(open_weights(path_)->metadata().contains("prompt"));
  EXPECT_EQ(open_weights(path_)->metadata().at("flux2").find("a fox"), std::string::npos);
  save_latents(path_, picture(), record(), {.a1111 = false, .json = false});
  EXPECT_TRUE(open_weights(path_)->metadata().empty());
}

TEST_F(LatentFiles, OfOtherShapesAreRefused) {
  const std::vector<float> values(64);
  save_tensors(path_, {{"weight", Tensor::host_copy(values.data(), DType::F32, {8, 8})}});
  EXPECT_THAT(failure(path_), HasSubstr("holds no tensor \"latent\""));
  save_tensors(path_, {{"latents", Tensor::host_copy(values.data(), DType::F32, {8, 8})}});
  EXPECT_THAT(failure(path_), HasSubstr("have shape [8, 8]"));
}

}  // namespace
}  // namespace flux2
