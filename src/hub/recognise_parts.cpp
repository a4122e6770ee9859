#include "hub/recognise_parts.h"

#include <fmt/format.h>

#include "hub/name_tests.h"
#include "hub/quantisation.h"
#include "model/flux2_transformer.h"
#include "model/tiny_decoder.h"
#include "model/vision_config.h"
#include "weights/named_weights.h"

namespace flux2 {

namespace {

constexpr size_t kMaxListed = 10;

Component component_of(ComponentKind kind, const NamedWeights& weights) {
  Component c{.kind = kind};
  c.dialect = name_of(weights.dialect());
  c.prefix = weights.prefix();
  c.storage = quantisation_label(weights.source(), c.prefix);
  return c;
}

// Tensors that a model of this geometry needs and that are missing or have a wrong shape.
std::vector<std::string> faults_of(const Flux2Config& config, const NamedWeights& weights) {
  std::vector<std::string> faults;
  Flux2Transformer(config).visit([&](const Parameter& p) {
    if (faults.size() > kMaxListed) return;
    if (!weights.has(p.name)) {
      faults.push_back(fmt::format("{} {} is missing", p.name, p.shape));
      return;
    }
    const Shape found = weights.shape(p.name);
    weights.dtype(p.name);  // throws for a type that cannot be read
    if (found != p.shape) faults.push_back(fmt::format("{} is {} instead of {}", p.name, found, p.shape));
  });
  return faults;
}

std::string encoder_for(int64_t width) {
  if (width == 2560) return "Qwen3-4B";
  if (width == 4096) return "Qwen3-8B";
  if (width == 5120) return "Mistral-Small-24B";
  return "Qwen3-like";
}

}  // namespace

std::optional<Component> recognise_transformer(const SharedSource& source) {
  const NamedWeights weights(source, ModelPart::Transformer);
  const char* signs[] = {"double_stream_modulation_img.lin.weight", "single_stream_modulation.lin.weight"};
  const char* sign = weights.has(signs[0]) ? signs[0] : weights.has(signs[1]) ? signs[1] : nullptr;
  if (!sign) return std::nullopt;

  Component c = component_of(ComponentKind::Transformer, weights);
  c.family = "FLUX.2";
  c.evidence.push_back(fmt::format("{}: modulation shared by all blocks, as only FLUX.2 has it", sign));
  try {
    const Flux2Config config = detect_flux2(weights);
    c.variant = config.name();
    c.evidence.push_back(fmt::format("width {}, {} double and {} single blocks, text width {}{}", config.hidden,
                                     config.double_blocks, config.single_blocks, config.text_width,
                                     config.guidance ? ", guidance input" : ""));
    if (config.text_width % 3 == 0)
      c.needs = fmt::format("a text encoder of width {} ({}) and the FLUX.2 autoencoder", config.text_width / 3,
                            encoder_for(config.text_width / 3));
    const auto faults = faults_of(config, weights);
    if (faults.empty()) {
      c.flux2 = config;
    } else {
      c.problem = "the FLUX.2 transformer is damaged:";
      for (size_t i = 0; i < std::min(faults.size(), kMaxListed); ++i) c.problem += (i ? "; " : " ") + faults[i];
      if (faults.size() > kMaxListed) c.problem += "; and more";
      c.hint = "download the file again";
    }
  } catch (const Error& e) {
    c.problem = e.what();
    c.hint = e.hint().plain();
  }
  return c;
}

std::optional<Component> recognise_autoencoder(const SharedSource& source) {
  const NamedWeights weights(source, ModelPart::Autoencoder);
  const char* first = "decoder.conv_in.weight";
  if (!weights.has(first) && !weights.has("bn.running_mean")) {
    const NameTests names(*source);
    const StoredTensor* tiny = names.containing("decoder.layers.0.");
    if (!tiny) tiny = names.ending("decoder.1.weight");
    if (!tiny) return std::nullopt;
    Component c{.kind = ComponentKind::Autoencoder, .family = "tiny autoencoder", .evidence = {tiny->name}};
    const auto tiny_names = find_tiny_decoder(*source);
    if (tiny_names && tiny_names->channels == kTinyDecoderChannels) c.variant = "FLUX.2";
    c.problem = "this is a tiny autoencoder for previews, not the model's own";
    c.hint = "use ae.safetensors of FLUX.2 (or vae/diffusion_pytorch_model.safetensors of a klein repository)";
    return c;
  }
  Component c = component_of(ComponentKind::Autoencoder, weights);
  const Shape shape = weights.has(first) ? weights.shape(first) : Shape{};
  const int64_t channels = shape.rank() >= 2 ? shape[1] : 0;
  if (shape.rank() == 5) c.family = "video";
  else if (channels == 32 || weights.has("bn.running_mean")) c.family = "FLUX.2";
  else if (channels == 16) c.family = "FLUX.1 or SD3";
  else if (channels == 4) c.family = "SD or SDXL";
  if (shape.rank() >= 2) c.evidence.push_back(fmt::format("{} {}: {} latent channels", first, shape, channels));
  if (weights.has("bn.running_mean")) c.evidence.push_back(fmt::format("bn.running_mean {}", weights.shape("bn.running_mean")));
  try {
    c.vae = detect_vae(weights);
    c.variant = c.vae->decoder_widths[0] < c.vae->encoder_widths[0] ? "small decoder" : "full";
    if (!c.vae->has_encoder) c.variant = "decoder only";
    c.evidence.push_back(fmt::format("decoder base width {}", c.vae->decoder_widths[0]));
    if (!c.vae->has_encoder) c.evidence.push_back("no encoder: references and editing need one");
  } catch (const Error& e) {
    c.problem = e.what();
    c.hint =
        "use ae.safetensors of FLUX.2-dev or flux2-vae.safetensors (vae/diffusion_pytorch_model.safetensors of a klein "
        "repository)";
  }
  return c;
}

std::optional<Component> recognise_upscaler(const WeightSource& source) {
  const StoredTensor* sign = upscaler_sign(source);
  if (!sign) return std::nullopt;
  Component c{.kind = ComponentKind::Upscaler, .family = "RRDBNet"};
  c.storage = quantisation_label(source, "");
  c.evidence.push_back(fmt::format("{} {}: a dense block", sign->name, sign->shape));
  c.dialect = sign->name.starts_with("model.") ? "ESRGAN" : "Real-ESRGAN";
  try {
    c.upscaler = detect_upscaler(source);
    c.variant = fmt::format("x{}", c.upscaler->scale);
    c.evidence.push_back(c.upscaler->name());
  } catch (const Error& e) {
    c.problem = e.what();
    c.hint = e.hint().plain();
  }
  return c;
}

std::optional<Component> recognise_classifier(const WeightSource& source) {
  const StoredTensor* sign = vit_sign(source);
  if (!sign) return std::nullopt;
  Component c{.kind = ComponentKind::Classifier, .family = "ViT"};
  c.storage = quantisation_label(source, "");
  c.evidence.push_back(fmt::format("{} {}: a classifier of images", sign->name, sign->shape));
  try {
    c.classifier = detect_vit(source);
    c.variant = c.classifier->label("nsfw") >= 0 ? "nsfw" : fmt::format("{} classes", c.classifier->labels.size());
    c.evidence.push_back(c.classifier->name());
  } catch (const Error& e) {
    c.problem = e.what();
    c.hint = e.hint().plain();
  }
  return c;
}

namespace {

struct TextFamily {
  std::string family, problem;
};

// Encoders of other families, recognised by tensor names or by the architecture of a GGUF file.
std::optional<TextFamily> foreign_encoder(const WeightSource& source, const NameTests& names, std::string& evidence) {
  const auto seen = [&](const StoredTensor* t) {
    if (t) evidence = t->name;
    return t != nullptr;
  };
  if (seen(names.containing("encoder.block.0.")) || seen(names.containing("enc.blk.")) || seen(names.ending("shared.weight")))
    return TextFamily{"T5", "this is a T5 text encoder; FLUX.2 does not use T5/CLIP"};
  if (seen(names.containing("text_model.encoder.layers.")))
    return TextFamily{"CLIP", "this is a CLIP text encoder; FLUX.2 does not use T5/CLIP"};
  if ((seen(names.ending("self_attn.q_proj.bias")) && names.ending("embed_tokens.weight")) ||
      (seen(names.ending("blk.0.attn_q.bias")) && names.ending("token_embd.weight")))
    return TextFamily{"Qwen2", "this is Qwen2 or Qwen2.5, whose attention has biases, not Qwen3"};
  if (seen(names.ending("pre_feedforward_layernorm.weight")) || seen(names.ending("post_ffw_norm.weight")))
    return TextFamily{"Gemma", "this is a Gemma language model, not Qwen3"};
  if (names.ending("self_attn.q_norm.weight") && seen(names.containing("visual.")))
    return TextFamily{"Qwen3-VL", "this is a Qwen3-VL model; its language weights differ from Qwen3's although the shapes match"};
  const auto& metadata = source.metadata();
  const auto named = metadata.find("general.architecture");
  const std::string architecture = named == metadata.end() ? "" : named->second;
  if (architecture.empty()) return std::nullopt;
  evidence = "general.architecture is " + architecture;
  if (architecture == "clip")
    return TextFamily{"vision projector", "this is the vision part (mmproj) of a language model, not a text encoder"};
  if (architecture.starts_with("qwen3vl"))
    return TextFamily{"Qwen3-VL", "this is a Qwen3-VL model; its language weights differ from Qwen3's although the shapes match"};
  return std::nullopt;
}

std::string qwen3_name(int64_t width) {
  if (width == 1024) return "Qwen3-0.6B";
  if (width == 2048) return "Qwen3-1.7B";
  if (width == 2560) return "Qwen3-4B";
  if (width == 4096) return "Qwen3-8B";
  if (width == 5120) return "Qwen3-14B or 32B";
  return fmt::format("Qwen3-like of width {}", width);
}

std::string mistral_name(int64_t width) {
  return width == mistral_small_config().hidden ? "Mistral-Small-24B" : fmt::format("Mistral-like of width {}", width);
}

// What a language model can be used for. Text states need only some of its layers; writing text needs all of them, the last norm
// and the head; looking at images needs the vision tower as well.
std::vector<std::string> abilities_of(const DecoderConfig& config, const NamedWeights& weights) {
  std::vector<std::string> list = {"text states"};
  const NameTests names(weights.source());
  const bool has_head = names.ending("lm_head.weight") || weights.has("lm_head.weight");
  const bool ties_head = config.family == DecoderFamily::Qwen3 && config.hidden < 4096;  // 4B and smaller
  const bool shortened = config.hidden == mistral_small_config().hidden && config.layers < mistral_small_config().layers;
  if (weights.has("model.norm.weight") && (has_head || ties_head) && !shortened) {
    list.push_back("rewriting");
    if (has_vision(weights)) list.push_back("images");
  }
  return list;
}

}  // namespace

std::optional<Component> recognise_text_encoder(const SharedSource& source) {
  const NamedWeights weights(source, ModelPart::TextEncoder);
  const NameTests names(*source);
  std::string evidence;
  const auto foreign = foreign_encoder(*source, names, evidence);
  const bool has_table = weights.has("model.embed_tokens.weight") && weights.shape("model.embed_tokens.weight").rank() == 2;
  if (!foreign && !(has_table && weights.has("model.layers.0.self_attn.q_proj.weight"))) return std::nullopt;

  Component c = component_of(ComponentKind::TextEncoder, weights);
  c.hint = "klein 4B reads prompts with Qwen3-4B, klein 9B with Qwen3-8B, dev with Mistral-Small-24B";
  if (has_table) {
    const Shape table = weights.shape("model.embed_tokens.weight");
    c.text_width = table[1];
    c.evidence.push_back(fmt::format("model.embed_tokens.weight {}: {} tokens, width {}", table, table[0], table[1]));
  }
  if (foreign) {
    c.family = foreign->family;
    c.problem = foreign->problem;
    c.evidence.push_back(evidence);
    return c;
  }
  const auto family = decoder_family(weights);
  c.family = family ? name_of(*family) : "Llama";
  c.evidence.push_back(family == DecoderFamily::Qwen3 ? "q_norm: queries and keys are normalised"
                                                      : "no q_norm: queries and keys are not normalised");
  if (!family) {
    c.problem = fmt::format("this is a Llama-like language model (width {}, {} tokens), not Qwen3", c.text_width,
                            weights.shape("model.embed_tokens.weight")[0]);
    return c;
  }
  c.variant = *family == DecoderFamily::Qwen3 ? qwen3_name(c.text_width) : mistral_name(c.text_width);
  try {
    c.decoder = detect_decoder(weights);
    c.evidence.push_back(fmt::format("{} layers, {}/{} heads of {}", c.decoder->layers, c.decoder->heads, c.decoder->kv_heads,
                                     c.decoder->head_dim));
    c.hint = {};
    c.serves = abilities_of(*c.decoder, weights);
    const int64_t needed = mistral_small_config().layers_needed();
    if (c.text_width == mistral_small_config().hidden && c.decoder->layers < needed && *family == DecoderFamily::Mistral) {
      c.problem = fmt::format("this file has {} of Mistral's layers, but FLUX.2-dev reads the output of layer {}",
                              c.decoder->layers, needed);
      c.hint = "use a file with at least 30 layers, such as mistral_3_small_flux2_bf16.safetensors";
    }
  } catch (const Error& e) {
    c.problem = e.what();
  }
  return c;
}

}  // namespace flux2
