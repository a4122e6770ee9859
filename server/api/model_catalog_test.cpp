#include "server/api/model_catalog.h"

#include <gmock/gmock.h>

#include "server/api/test_api.h"
#include "weights/named_weights.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

using Catalog = ApiTest;

TEST_F(Catalog, FindsModelsByEveryNameButNoPath) {
  const InstalledModel pico = models_.main_models().at(0);
  for (const std::string& name : {pico.name, pico.title(), pico.hash, pico.sha256, std::string("pico [0000000000]")})
    EXPECT_EQ(models_.name_of(name), "pico") << name;
  const std::string path = bundled_model(app_.environment).string();
  EXPECT_THROW(models_.find(path), HttpError);
  EXPECT_THROW(models_.name_of("nobody"), HttpError);
}

TEST_F(Catalog, TheDefaultComesFromTheServersSettings) {
  EXPECT_EQ(models_.find("").id, "pico");
  RequestSpec spec;
  spec.model = bundled_model(app_.environment).string();  // the server itself may be given a path
  models_.set_default(spec);
  EXPECT_EQ(models_.find("").id, "pico");
  spec.model = "nobody";
  models_.set_default(spec);
  try {
    models_.find("");
    FAIL() << "no error";
  } catch (const HttpError& e) {
    EXPECT_EQ(e.code, "model_not_found");
    EXPECT_THAT(e.what(), testing::HasSubstr("No model is available"));
  }
}

// An adapter of one layer that takes `inputs` numbers and gives `outputs`.
std::filesystem::path written_adapter(const std::filesystem::path& file, int64_t inputs, int64_t outputs) {
  const std::string layer = "diffusion_model.single_blocks.0.linear2.";
  const std::vector<float> zeros(static_cast<size_t>(2 * std::max(inputs, outputs)));
  save_tensors(file, {{layer + "lora_A.weight", Tensor::host_copy(zeros.data(), DType::F32, {2, inputs})},
                      {layer + "lora_B.weight", Tensor::host_copy(zeros.data(), DType::F32, {outputs, 2})}});
  return file;
}

TEST_F(Catalog, SaysWhichModelsAnAdapterFits) {
  const NamedWeights weights(open_weights(models_.find("pico").transformer), ModelPart::Transformer);
  const Flux2Config pico = detect_flux2(weights);
  const int64_t inputs = pico.hidden + pico.mlp();
  EXPECT_EQ(models_.models_for(written_adapter(folder_ / "fits.safetensors", inputs, pico.hidden)),
            std::vector<std::string>{"pico"});
  EXPECT_TRUE(models_.models_for(written_adapter(folder_ / "other.safetensors", 4 * inputs, 4 * pico.hidden)).empty());
  EXPECT_TRUE(models_.models_for(folder_ / "missing.safetensors").empty());
}

}  // namespace
}  // namespace flux2
