#include "hub/registry/starter.h"

#include <algorithm>
#include <cctype>

#include "hub/variants.h"

namespace flux2 {

namespace {

constexpr const char* kNonCommercial = "FLUX non-commercial licence";
constexpr uint64_t kTokenizerBytes = 16'000'000;

StarterPart transformer(std::string what, std::string source, uint64_t bytes, bool gated = false, bool exact = true) {
  return {ModelType::Main, std::move(what), std::move(source), bytes, exact, gated ? kNonCommercial : "Apache-2.0", gated};
}

// The open klein repository has the autoencoder of all variants, in bf16.
StarterPart autoencoder() {
  return {ModelType::Vae, "autoencoder, bf16", "black-forest-labs/FLUX.2-klein-4B::vae", 168'000'000, false};
}
StarterPart encoder(std::string what, std::string source, uint64_t bytes, int64_t width) {
  return {ModelType::TextEncoder, std::move(what), std::move(source), bytes, false, "Apache-2.0", false, width};
}
StarterPart tokenizer() {
  return {ModelType::Tokenizer, "Qwen3 tokenizer", "black-forest-labs/FLUX.2-klein-4B::tokenizer", kTokenizerBytes, false};
}
StarterPart qwen_4b() {
  return encoder("Qwen3-4B, bf16", "black-forest-labs/FLUX.2-klein-4B::text_encoder", 8'044'982'048, 2560);
}
// 30 of its 40 layers, which is all that text states need, and its tokenizer inside.
StarterPart mistral() {
  return encoder("Mistral-Small-24B, bf16",
                 "Comfy-Org/flux2-dev::split_files/text_encoders/mistral_3_small_flux2_bf16.safetensors", 35'600'000'000, 5120);
}
// Published as pickles; this repository has them as safetensors.
Starter real_esrgan(const std::string& name, const std::string& file, const std::string& summary) {
  return {name,
          "",
          summary,
          {{ModelType::Upscaler, file + ", f32", "Comfy-Org/Real-ESRGAN_repackaged::" + file + ".safetensors", 66'900'000, false,
            "BSD-3-Clause"}}};
}
StarterPart qwen_8b() { return encoder("Qwen3-8B, bf16", "Qwen/Qwen3-8B", 16'381'517'176, 4096); }

}  // namespace

const std::vector<Starter>& starters() {
  static const std::vector<Starter> list = {
      {"flux.2-klein-4b",
       "flux.2-klein-4b",
       "recommended first model: 4 steps, open licence",
       {transformer("klein 4B, bf16", "black-forest-labs/FLUX.2-klein-4B::flux-2-klein-4b.safetensors", 7'751'105'712),
        autoencoder(), qwen_4b(), tokenizer()}},
      {"flux.2-klein-4b-small",
       "flux.2-klein-4b",
       "the same with 4-bit weights, for machines with little memory",
       {transformer("klein 4B, Q4_K_M", "unsloth/FLUX.2-klein-4B-GGUF:Q4_K_M", 2'600'000'000, false, false), autoencoder(),
        encoder("Qwen3-4B, Q4_K_M", "unsloth/Qwen3-4B-GGUF:Q4_K_M", 2'500'000'000, 2560), tokenizer()}},
      {"flux.2-klein-4b-fp8",
       "flux.2-klein-4b",
       "the same with 8-bit weights, for GPUs with FP8 products",
       {transformer("klein 4B, fp8", "black-forest-labs/FLUX.2-klein-4b-fp8::flux-2-klein-4b-fp8.safetensors", 4'070'624'520),
        autoencoder(), qwen_4b(), tokenizer()}},
      {"flux.2-klein-base-4b",
       "flux.2-klein-base-4b",
       "not distilled: for training and for true guidance",
       {transformer("klein base 4B, bf16", "black-forest-labs/FLUX.2-klein-base-4B::flux-2-klein-base-4b.safetensors",
                    7'751'105'712),
        autoencoder(), qwen_4b(), tokenizer()}},
      {"flux.2-klein-9b",
       "flux.2-klein-9b",
       "larger and more detailed, 4 steps; not for commercial use",
       {transformer("klein 9B, bf16", "black-forest-labs/FLUX.2-klein-9B::flux-2-klein-9b.safetensors", 18'157'185'168, true),
        autoencoder(), qwen_8b(), tokenizer()}},
      {"flux.2-klein-9b-kv",
       "flux.2-klein-9b-kv",
       "the 9B model that processes references once; not for commercial use",
       {transformer("klein 9B KV, fp8", "black-forest-labs/FLUX.2-klein-9b-kv-fp8::flux-2-klein-9b-kv-fp8.safetensors",
                    9'818'935'984, true),
        autoencoder(), qwen_8b(), tokenizer()}},
      {"flux.2-klein-base-9b",
       "flux.2-klein-base-9b",
       "the 9B model without distillation; not for commercial use",
       {transformer("klein base 9B, bf16", "black-forest-labs/FLUX.2-klein-base-9B::flux-2-klein-base-9b.safetensors",
                    18'157'185'168, true),
        autoencoder(), qwen_8b(), tokenizer()}},
      {"flux.2-dev",
       "flux.2-dev",
       "the largest, 50 steps; its text encoder cannot rewrite prompts; not for commercial use",
       {transformer("dev, bf16", "black-forest-labs/FLUX.2-dev::flux2-dev.safetensors", 64'446'600'000, true, false),
        autoencoder(), mistral()}},
      real_esrgan("realesrgan-x4plus", "RealESRGAN_x4plus", "upscaler: enlarges images four times"),
      real_esrgan("realesrgan-x2plus", "RealESRGAN_x2plus", "upscaler: enlarges images to twice their size"),
      {"safety-nsfw",
       "",
       "classifier for the safety check of images",
       {{ModelType::Classifier, "ViT-B/16, f32",
         "Falconsai/nsfw_image_detection::model.safetensors+config.json+preprocessor_config.json", 343'223'968, false}}},
      {"clip-vit-large-patch14",
       "",
       "image encoder for image prompts",
       {{ModelType::ImageEncoder, "CLIP ViT-L/14, f32",
         "openai/clip-vit-large-patch14::model.safetensors+config.json+preprocessor_config.json", 1'710'540'580, false, "MIT"}}},
      {"taef2",
       "",
       "tiny autoencoder: previews of every step that show details",
       {{ModelType::TinyVae, "taef2, f32", "madebyollin/taef2::taef2.safetensors", 9'900'000, false, "MIT"}}},
  };
  return list;
}

const Starter* find_starter(std::string_view name) {
  for (const Starter& s : starters())
    if (bare_model_name(s.name) == bare_model_name(name)) return &s;
  return nullptr;
}

const ModelRecord* record_for(const StarterPart& part, const Starter& starter, const std::vector<ModelRecord>& records) {
  constexpr uint64_t kRealVocabulary = 1 << 20;  // bytes; tokenizers of toy models are smaller
  const bool quantised = part.what.find("bf16") == std::string::npos;
  const auto fits = [&](const ModelRecord& r) {
    if (r.type != part.type) return false;
    const std::string quant = r.quant.substr(0, r.quant.find(','));
    switch (part.type) {
      case ModelType::Main:
        return r.variant == starter.variant && quantised == (quant != "bf16" && quant != "f16" && quant != "f32");
      case ModelType::Vae: return r.family == "FLUX.2" && r.probe.hidden == 128;
      case ModelType::Classifier: return r.family == "ViT" && r.variant == "nsfw";
      case ModelType::ImageEncoder: return r.family == "CLIP" && r.variant == "ViT-L/14";
      case ModelType::TinyVae: return r.variant == "FLUX.2";
      case ModelType::Upscaler: return r.path.stem() == part.what.substr(0, part.what.find(','));
      case ModelType::TextEncoder: return (r.family == "Qwen3" || r.family == "Mistral") && r.probe.hidden == part.width;
      default: return r.bytes >= kRealVocabulary;
    }
  };
  const ModelRecord* found = nullptr;
  for (const ModelRecord& r : records)
    if (fits(r) && (!found || (found->state != ModelState::Ready && r.state == ModelState::Ready))) found = &r;
  return found;
}

}  // namespace flux2
