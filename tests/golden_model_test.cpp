// Compares the three networks in profile exact with the reference, block by block, so that a failure names the first block that
// differs.
#include <gtest/gtest.h>

#include "autograd/grad.h"
#include "engine/backends.h"
#include "nn/timestep.h"
#include "ops/arithmetic.h"
#include "ops/loss.h"
#include "ops/view.h"
#include "pipeline/latents.h"
#include "tests/support/devices.h"
#include "tests/support/golden.h"

namespace flux2 {
namespace {

constexpr double kLimit = 1e-4;

Engine exact_engine(const std::string& device = "cpu") {
  return Engine({.device = device, .threads = 2, .profile = Profile::Exact});
}

// The CPU, and the GPU if there is one: both must give the same numbers.
std::vector<std::string> devices() {
  std::vector<std::string> names = {"cpu"};
  if (gpu_count() > 0) names.push_back("cuda");
  return names;
}

std::vector<TokenPosition> positions(const Golden& g) {
  std::vector<TokenPosition> p;
  for (const char* name : {"ctx_ids", "x_ids"}) {
    const auto ids = g[name].to_ints();
    for (size_t i = 0; i < ids.size(); i += 4) p.push_back({ids[i], ids[i + 1], ids[i + 2], ids[i + 3]});
  }
  return p;
}

Tensor batch_of_one(const Tensor& x) { return reshape(x, {1, x.dim(0), x.dim(1)}); }

// Compares every tensor that the reference recorded and returns the worst relative error.
class TapChecker {
 public:
  TapChecker(const Golden& golden, bool pictures) : golden_(golden), pictures_(pictures) {}

  Taps taps() {
    return [this](const std::string& name, const Tensor& value) {
      if (!golden_.has("tap." + name)) return;
      const auto mine = pictures_ ? channels_first(value) : value.to_doubles();
      const Difference d = difference(mine, golden_["tap." + name].to_doubles());
      EXPECT_LE(d.relative, kLimit) << name << ": " << d.str();
      worst = std::max(worst, d.relative);
      ++seen;
    };
  }
  int expected() const {
    int n = 0;
    for (const std::string& name : golden_.names()) n += name.starts_with("tap.");
    return n;
  }

  double worst = 0;
  int seen = 0;

 private:
  const Golden& golden_;
  bool pictures_;
};

void check_transformer(const std::string& device, const std::string& file, const std::string& golden_name) {
  const Engine engine = exact_engine(device);
  const auto model = engine.open(tiny_model(file), {}, {.text_encoder = false, .vae = false});
  const auto loaded = model->models.transformer.get();
  const Flux2Transformer& transformer = *loaded;
  Stream& stream = *model->stream;
  const Golden g(golden_name);
  const Rope rope = flux2_rope(stream, positions(g));
  const auto sinusoid = [&](const char* name) {
    const std::vector<float> argument = {1000.0f * g[name].to_floats()[0]};
    return timestep_embedding(stream, argument, DType::F32);
  };
  TapChecker checker(g, false);
  const auto run = [&](const Taps& taps) {
    return transformer({.x = batch_of_one(g.on(stream, "x")),
                        .vec = transformer.condition(sinusoid("t"), g.has("guidance") ? sinusoid("guidance") : Tensor()),
                        .txt = transformer.embed_text(batch_of_one(g.on(stream, "ctx"))),
                        .rope = rope,
                        .taps = taps});
  };
  const Difference d = difference(run(checker.taps()).to_doubles(), g["out"].to_doubles());
  EXPECT_LE(d.relative, kLimit) << "out: " << d.str();
  // Without taps, the last block leaves out what nobody reads.
  const Difference cut = difference(run({}).to_doubles(), g["out"].to_doubles());
  EXPECT_LE(cut.relative, kLimit) << "out: " << cut.str();
  EXPECT_EQ(checker.seen, checker.expected());
  fmt::print("{} on {}: output {:.2g}, worst tap {:.2g} ({} taps)\n", golden_name, device, d.relative, checker.worst,
             checker.seen);
}

class GoldenOn : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, GoldenOn, testing::ValuesIn(devices()), [](const auto& test) { return test.param; });

TEST_P(GoldenOn, Transformer) { check_transformer(GetParam(), "flux-2-klein-tiny.safetensors", "transformer.safetensors"); }
TEST_P(GoldenOn, TransformerWithGuidance) {
  check_transformer(GetParam(), "flux2-dev-tiny.safetensors", "transformer-dev.safetensors");
}

TEST_P(GoldenOn, Autoencoder) {
  const Engine engine = exact_engine(GetParam());
  const auto model = engine.open(tiny_model(), {}, {.transformer = false, .text_encoder = false});
  const Vae& vae = *model->models.vae;
  Stream& stream = *model->stream;
  const Golden g("vae.safetensors");
  TapChecker checker(g, true);
  const Tensor tokens = vae.encode(channels_last(g.on(stream, "image")), checker.taps());
  const Tensor latents = g["latents"];
  const int64_t rows = latents.dim(1), columns = latents.dim(2);
  const Difference encoded = difference(channels_first(reshape(tokens, {1, rows, columns, 128})), latents.to_doubles());
  EXPECT_LE(encoded.relative, kLimit) << "latents: " << encoded.str();

  const Tensor given = reshape(channels_last(g.on(stream, "latents")), {1, rows * columns, 128});
  const Difference decoded =
      difference(channels_first(vae.decode(given, rows, columns, checker.taps())), g["decoded"].to_doubles());
  EXPECT_LE(decoded.relative, kLimit) << "decoded: " << decoded.str();
  EXPECT_EQ(checker.seen, checker.expected());
  fmt::print("vae on {}: encode {:.2g}, decode {:.2g}, worst tap {:.2g} ({} taps)\n", GetParam(), encoded.relative,
             decoded.relative, checker.worst, checker.seen);
}

TEST_P(GoldenOn, TextEncoder) {
  const Engine engine = exact_engine(GetParam());
  const auto model = engine.open(tiny_model(), {}, {.transformer = false, .vae = false});
  Stream& stream = *model->stream;
  const Golden g("text.safetensors");
  double worst = 0;
  int prompts = 0;
  for (; g.has(fmt::format("{}.embeddings", prompts)); ++prompts) {
    const auto named = [&](const char* what) { return g.on(stream, fmt::format("{}.{}", prompts, what), DType::I32); };
    const Tensor ids = named("input_ids"), mask = named("attention_mask");
    const Shape one{1, ids.numel()};
    const Tensor states = (*model->models.text_encoder.get())(reshape(ids, one), reshape(mask, one), DType::F32);
    const Difference d = difference(states.to_doubles(), g[fmt::format("{}.embeddings", prompts)].to_doubles());
    EXPECT_LE(d.relative, kLimit) << "prompt " << prompts << ": " << d.str();
    worst = std::max(worst, d.relative);
  }
  EXPECT_GE(prompts, 3);
  fmt::print("text on {}: worst {:.2g} over {} prompts\n", GetParam(), worst, prompts);
}

double norm_of(const std::vector<double>& values) {
  double square = 0;
  for (double v : values) square += v * v;
  return std::sqrt(square);
}

// The flow-matching loss of the tiny transformer and the gradient of every weight, with and without checkpoint. Weights are
// F32 whatever the activations are.
void check_gradients(const std::string& device, Profile profile, double limit) {
  const Engine engine({.device = device, .threads = 2, .profile = profile});
  const auto loaded = engine.open(tiny_model(), {}, {.text_encoder = false, .vae = false});
  Flux2Transformer transformer = *loaded->models.transformer.get();
  Stream& stream = *loaded->stream;
  const DType dtype = loaded->activations;
  transformer.visit([&](const Parameter& p) { p.tensor = parameter(p.tensor.to(stream).cast(DType::F32)); });

  const Golden g("gradients.safetensors");
  const float t = g["t"].to_floats()[0];
  auto where = text_positions(g["ctx"].dim(0));
  for (const auto& p : picture_positions(3, 4)) where.push_back(p);
  for (const auto& p : picture_positions(2, 3, 10)) where.push_back(p);
  const Rope rope = flux2_rope(stream, where);
  const std::vector<float> argument = {1000.0f * t};
  const Tensor x0 = batch_of_one(g.on(stream, "x0")), eps = batch_of_one(g.on(stream, "eps"));
  const Tensor x_t = parameter((1.0 - static_cast<double>(t)) * x0 + static_cast<double>(t) * eps);

  struct Result {
    Tensor v, loss;
    Gradients gradients;
  };
  const auto run = [&](bool checkpointed) {
    Result r;
    r.v = transformer({.x = concat({cast(x_t, dtype), batch_of_one(g.on(stream, "ref", dtype))}, 1),
                       .vec = transformer.condition(timestep_embedding(stream, argument, dtype), {}),
                       .txt = transformer.embed_text(batch_of_one(g.on(stream, "ctx", dtype))),
                       .rope = rope,
                       .keep = x0.dim(1),
                       .checkpoint_blocks = checkpointed});
    r.loss = mse_loss(cast(r.v, DType::F32), eps - x0);
    r.gradients = backward(r.loss);
    return r;
  };
  const Result r = run(false);
  double worst = 0;
  // `floor` is a norm below which the error does not shrink with the values.
  const auto compare = [&](const std::string& what, const std::vector<double>& mine, const Tensor& theirs, double floor = 0) {
    const Difference d = difference(mine, theirs.to_doubles());
    const double norm = norm_of(theirs.to_doubles()), error = norm < floor ? d.relative * norm / floor : d.relative;
    EXPECT_LE(error, limit) << what << ": " << d.str();
    worst = std::max(worst, error);
  };
  compare("v", r.v.to_doubles(), g["v"]);
  compare("loss", r.loss.to_doubles(), g["loss"]);
  compare("grad.x_t", r.gradients[x_t].to_doubles(), g["grad.x_t"]);
  int weights = 0;
  transformer.visit([&](const Parameter& p) {
    const std::vector<double> mine = r.gradients[p.tensor].to_doubles();
    if (g.has("grad." + p.name)) compare("grad." + p.name, mine, g["grad." + p.name]);
    // The file's norms were added up in f32, which costs some 1e-4 for the largest matrices.
    const double norm = g["norm." + p.name].to_doubles()[0];
    EXPECT_NEAR(norm_of(mine) / norm, 1.0, std::max(limit, 1e-3)) << p.name;
    // Some matrices begin with values that are far smaller than the others; in bf16 their sums are rounded together.
    const auto count = static_cast<ptrdiff_t>(std::min<size_t>(64, mine.size()));
    const double share = norm * std::sqrt(static_cast<double>(count) / static_cast<double>(mine.size()));
    compare("head." + p.name, {mine.begin(), mine.begin() + count}, g["head." + p.name], dtype == DType::BF16 ? share : 0.0);
    ++weights;
  });
  EXPECT_EQ(weights, 12 + 4 + 9);
  fmt::print("gradients on {} {}: worst {:.2g} over {} weights\n", device, name_of(dtype), worst, weights);

  const Result again = run(true);
  EXPECT_EQ(again.v.to_floats(), r.v.to_floats());
  EXPECT_EQ(again.gradients[x_t].to_floats(), r.gradients[x_t].to_floats());
  transformer.visit([&](const Parameter& p) {
    EXPECT_EQ(again.gradients[p.tensor].to_floats(), r.gradients[p.tensor].to_floats()) << p.name << " differs under checkpoint";
  });
}

TEST(Golden, Gradients) { check_gradients("cpu", Profile::Exact, kLimit); }

TEST(Golden, GradientsOnTheGpu) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  check_gradients("cuda", Profile::Exact, 1e-3);
  check_gradients("cuda", Profile::Fast, 2e-2);
}

}  // namespace
}  // namespace flux2
