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
              {"norm_num_groups", 32},
              {"batch_norm_eps", 1e-4},
              {"batch_norm_momentum", 0.1},
              {"patch_size", {2, 2}},
              {"use_quant_conv", true},
              {"use_post_quant_conv", true},
              {"mid_block_add_attention", true}};
  if (v.decoder_widths != v.encoder_widths) vae["decoder_block_out_channels"] = v.decoder_widths;
  return vae;
}

Json text_encoder_config(const DecoderConfig& c, DType dtype) {
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
  config["tie_word_embeddings"] = !weights.has("lm_head.weight");
  return config;
}

}  // namespace flux2
