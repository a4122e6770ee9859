// Whole generations with quantised weights on every device: their error against the reference's trace in f32.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/json.h"
#include "engine/backends.h"
#include "tests/support/golden.h"
#include "weights/named_weights.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

class QuantisedModelOn : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, QuantisedModelOn,
                         testing::ValuesIn(gpu_count() > 0 ? std::vector<std::string>{"cpu", "cuda"}
                                                           : std::vector<std::string>{"cpu"}),
                         [](const auto& test) { return test.param; });

// The last latents of the reference's four steps.
std::vector<float> final_latents(ModelSession& model) {
  const Json j = read_json(golden_path("generate.json")).at("t2i");
  Request request;
  request.prompt = j.at("prompt");
  request.height = j.at("hw")[0];
  request.width = j.at("hw")[1];
  request.steps = j.at("steps");
  request.seed = j.at("seed");
  Trace trace;
  model.trace = &trace;
  text_to_image(model, request, {}, [](const Picture&) {});
  model.trace = nullptr;
  const std::string path = testing::TempDir() + fmt::format("quantised-{}.safetensors", ::getpid());
  trace.save(path);
  return open_weights(path)->open(fmt::format("latents.{}", request.steps)).to_floats();
}

double error_of(const std::vector<float>& latents) {
  const Golden golden("generate-t2i.safetensors");
  const auto steps = read_json(golden_path("generate.json")).at("t2i").at("steps").get<int>();
  return difference({latents.begin(), latents.end()}, golden[fmt::format("latents.{}", steps)].to_doubles()).relative;
}

TEST_P(QuantisedModelOn, FinalLatentsStayNearTheReference) {
  const std::vector<std::pair<Quant, double>> limits = {
      {Quant::None, 0.01}, {Quant::Int8, 0.02}, {Quant::Q8_0, 0.02}, {Quant::Q4_0, 0.2}, {Quant::Fp8, 0.06}};
  for (const auto& [quant, limit] : limits) {
    const auto model = Engine({.device = GetParam(), .threads = 2, .quant = quant}).open(tiny_model(), {});
    const double error = error_of(final_latents(*model));
    fmt::print("final latents of the tiny model on {}, {}: error {:.2g}\n", GetParam(), name_of(quant), error);
    EXPECT_LE(error, limit) << name_of(quant);
  }
}

// One scale for a whole matrix, and one for its inputs, as in BFL's own files.
void write_fp8_file(const std::filesystem::path& path) {
  const auto stream = Engine({.device = "cpu", .threads = 2}).device().open_stream();
  const NamedWeights weights(open_weights(tiny_model().transformer), ModelPart::Transformer);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : weights.names()) {
    const Tensor t = weights.open(name);
    if (t.rank() != 2 || name.find("blocks.") == std::string::npos) {
      tensors.emplace_back(name, t);
      continue;
    }
    std::vector<float> values = t.to_floats();
    float largest = 0;
    for (float v : values) largest = std::max(largest, std::abs(v));
    for (float& v : values) v *= 448.0f / largest;
    const std::string layer = name.substr(0, name.size() - std::string("weight").size());
    const float scale = largest / 448.0f, input_scale = 0.01f;
    tensors.emplace_back(name, Tensor::from<float>(*stream, DType::F8_E4M3, t.shape(), values));
    tensors.emplace_back(layer + "weight_scale", Tensor::host_copy(&scale, DType::F32, Shape{}));
    tensors.emplace_back(layer + "input_scale", Tensor::host_copy(&input_scale, DType::F32, Shape{}));
  }
  save_tensors(path, tensors);
}

TEST_P(QuantisedModelOn, Fp8FilesOpenAsTheyAre) {
  const std::filesystem::path path = testing::TempDir() + fmt::format("tiny-fp8-{}.safetensors", ::getpid());
  write_fp8_file(path);
  ModelFiles files = tiny_model();
  files.transformer = path;
  const auto model = Engine({.device = GetParam(), .threads = 2}).open(files, {});
  EXPECT_EQ(model->models.transformer.get()->single_blocks[0].in.weight.dtype(), DType::F8_E4M3);
  const double error = error_of(final_latents(*model));
  fmt::print("final latents of the tiny model on {}, FP8 file: error {:.2g}\n", GetParam(), error);
  EXPECT_LE(error, 0.06);
}

// Blocks that are rounded on the host and streamed equal blocks that are rounded on the device.
TEST_P(QuantisedModelOn, StreamedBlocksGiveTheSameLatents) {
  for (Quant quant : {Quant::Fp8, Quant::Int8, Quant::Q4_0}) {
    const auto load = [&](Offload offload) {
      return Engine({.device = GetParam(), .threads = 2, .quant = quant, .offload = offload}).open(tiny_model(), {});
    };
    EXPECT_EQ(final_latents(*load(Offload::None)), final_latents(*load(Offload::Stream))) << name_of(quant);
  }
}

// Beside fp8 weights: the steps with attention in 8 bits differ from those without it, and little.
TEST(QuantisedModel, AttentionInEightBitsStaysNearTheReference) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  const auto latents = [](Quant quant, AttentionBits attention, Profile profile = Profile::Fast) {
    const Engine engine({.device = "cuda", .profile = profile, .quant = quant, .attention = attention});
    return final_latents(*engine.open(tiny_model(), {}));
  };
  const bool here = Engine({.device = "cuda"}).device().attends_in_8_bits();
  const auto sixteen = latents(Quant::Fp8, AttentionBits::Sixteen), eight = latents(Quant::Fp8, AttentionBits::Eight);
  EXPECT_EQ(latents(Quant::Fp8, AttentionBits::AsWeights), eight);
  EXPECT_EQ(latents(Quant::None, AttentionBits::AsWeights), latents(Quant::None, AttentionBits::Sixteen));
  EXPECT_EQ(latents(Quant::None, AttentionBits::Eight, Profile::Exact),
            latents(Quant::None, AttentionBits::Sixteen, Profile::Exact));
  if (!here) {
    EXPECT_EQ(eight, sixteen);
    return;
  }
  const double change = difference({eight.begin(), eight.end()}, {sixteen.begin(), sixteen.end()}).relative;
  fmt::print("final latents of the tiny model, fp8 with attention in 8 bits: error {:.2g}, {:.2g} from fp8 alone\n",
             error_of(eight), change);
  EXPECT_GT(change, 1e-4) << "attention was not in 8 bits";
  EXPECT_LT(change, 0.05);
  EXPECT_LE(error_of(eight), 0.06);
}

TEST(QuantisedModel, AttentionInEightBitsNeedsAHopperGpu) {
  std::string said;
  EngineOptions options{.device = "cpu", .threads = 2, .attention = AttentionBits::Eight};
  options.log = Log([&](LogLevel, std::string_view text) { said += text; });
  EXPECT_EQ(Engine(options).attention(), AttentionBits::Sixteen);
  EXPECT_NE(said.find("attention in fp8 needs an NVIDIA Hopper GPU"), std::string::npos) << said;
  said.clear();
  options.attention = AttentionBits::AsWeights;
  EXPECT_EQ(Engine(options).attention(), AttentionBits::Sixteen);
  EXPECT_EQ(said, "");
}

// Rounding an encoder takes longer than encoding with it.
TEST(QuantisedModel, LaterPromptsAreEncodedWhileTheEncoderIsLoaded) {
  const auto model = Engine({.device = "cpu", .threads = 2, .quant = Quant::Int8}).open(short_text_model(), {});
  Session& session = *model;
  int visits = 0;
  session.text_done = [&, leave = session.text_done](Session& s) {
    visits += model->models.text_encoder.is_loaded();
    leave(s);
  };
  const auto picture = [&](const std::string& prompt) {
    Request request;
    request.prompt = prompt;
    request.width = request.height = 64;
    request.steps = 1;
    std::vector<float> values;
    text_to_image(session, request, {}, [&](const Picture& p) { values = p.decoded.planes().values; });
    return values;
  };
  const auto alone = picture("a second prompt");
  session.prompt_cache.clear();
  visits = 0;
  session.prompts_ahead = {"a prompt", "a second prompt", "a prompt", "a third"};
  picture("a prompt");
  EXPECT_EQ(session.prompts_ahead, (std::vector<std::string>{"a second prompt", "a third"}));
  EXPECT_EQ(picture("a second prompt"), alone);
  picture("a third");
  EXPECT_EQ(visits, 1);
  EXPECT_TRUE(session.prompts_ahead.empty());
}

}  // namespace
}  // namespace flux2
