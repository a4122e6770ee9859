#include "hub/component_config.h"

#include <filesystem>

#include "base/error.h"

namespace flux2 {

Json transformer_config(const Flux2Config& t) {
  return {{"_class_name", "Flux2Transformer2DModel"},
          {"patch_size", 1},
          {"in_channels", t.channels},
          {"out_channels", nullptr},
          {"num_layers", t.double_blocks},
          {"num_single_layers", t.single_blocks},
          {"attention_head_dim", Flux2Config::kHeadDim},
          {"num_attention_heads", t.heads()},
          {"joint_attention_dim", t.text_width},
          {"timestep_guidance_channels", 256},
          {"mlp_ratio", 3.0},
          {"axes_dims_rope", {32, 32, 32, 32}},
          {"rope_theta", 2000},
          {"eps", 1e-6},
          {"guidance_embeds", t.guidance}};
}

Json autoencoder_config(const VaeConfig& v) {
  Json vae = {{"_class_name", "AutoencoderKLFlux2"},
              {"in_channels", 3},
              {"out_channels", 3},
              {"block_out_channels", v.encoder_widths},
              {"layers_per_block", VaeConfig::kEncoderBlocks},
              {"latent_channels", v.latent_channels},
              {"norm_num_groups", v.norm_groups},
              {"batch_norm_eps", 1e-4},
              {"batch_norm_momentum", 0.1},
              {"patch_size", {2, 2}},
              {"use_quant_conv", true},
              {"use_post_quant_conv", true},
              {"mid_block_add_attention", true}};
  if (v.decoder_widths != v.encoder_widths) vae["decoder_block_out_channels"] = v.decoder_widths;
  return vae;
}

namespace {

// Mistral's language model inside a model that also sees, as FLUX.2-dev's folder has it. The vision tower is that of the
// published model, or a small one beside a small language model.
Json mistral_config(const DecoderConfig& c, DType dtype) {
  const char* type = dtype == DType::F32 ? "float32" : "bfloat16";
  const VisionConfig v = vision_config_for(c);
  return {{"architectures", {"Mistral3ForConditionalGeneration"}},
          {"model_type", "mistral3"},
          {"image_token_index", 10},
          {"multimodal_projector_bias", false},
          {"projector_hidden_act", "gelu"},
          {"spatial_merge_size", v.merge},
          {"vision_feature_layer", -1},
          {"torch_dtype", type},
          {"text_config",
           {{"model_type", "mistral"},
            {"vocab_size", c.vocab},
            {"hidden_size", c.hidden},
            {"intermediate_size", c.intermediate},
            {"num_hidden_layers", c.layers},
            {"num_attention_heads", c.heads},
            {"num_key_value_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", c.rope_theta},
            {"sliding_window", nullptr},
            {"attention_dropout", 0.0},
            {"hidden_act", "silu"},
            {"tie_word_embeddings", false},
            {"max_position_embeddings", 131072}}},
          {"vision_config",
           {{"model_type", "pixtral"},
            {"hidden_size", v.hidden},
            {"intermediate_size", v.intermediate},
            {"num_hidden_layers", v.layers},
            {"num_attention_heads", v.heads},
            {"head_dim", v.hidden / v.heads},
            {"image_size", v.image},
            {"patch_size", v.patch},
            {"num_channels", 3},
            {"hidden_act", "silu"},
            {"attention_dropout", 0.0},
            {"rope_theta", 10000.0}}}};
}

}  // namespace

VisionConfig vision_config_for(const DecoderConfig& c) {
  VisionConfig v;
  if (c.hidden != mistral_small_config().hidden) v = {.hidden = 64, .intermediate = 128, .layers = 2, .heads = 4, .image = 224};
  v.text_hidden = c.hidden;
  v.projector_eps = c.norm_eps;
  return v;
}

Json text_encoder_config(const DecoderConfig& c, DType dtype) {
  if (c.family == DecoderFamily::Mistral) return mistral_config(c, dtype);
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"vocab_size", c.vocab},
          {"hidden_size", c.hidden},
          {"intermediate_size", c.intermediate},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", c.rope_theta},
          {"tie_word_embeddings", true},
          {"attention_bias", false},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 40960},
          {"torch_dtype", dtype == DType::F32 ? "float32" : "bfloat16"}};
}

Json config_of(const NamedWeights& weights) {
  switch (weights.part()) {
    case ModelPart::Transformer: return transformer_config(detect_flux2(weights));
    case ModelPart::Autoencoder: return autoencoder_config(detect_vae(weights));
    case ModelPart::TextEncoder: break;
  }
  std::error_code unreadable;
  for (const StoredTensor& t : weights.source().tensors()) {
    if (!t.file) continue;
    const auto beside = t.file->path().parent_path() / "config.json";
    if (std::filesystem::is_regular_file(beside, unreadable)) {
      Json config = read_model_json(beside);
      if (!config.is_object()) fail(ErrorCode::BadFile, "{}: expected a JSON object", beside.string());
      config.erase("quantization_config");  // what is written has its own
      return config;
    }
    break;
  }
  Json config = text_encoder_config(detect_decoder(weights), DType::BF16);
  if (config.contains("tie_word_embeddings")) config["tie_word_embeddings"] = !weights.has("lm_head.weight");
  return config;
}

}  // namespace flux2
