#include <string>

#include "weights/name_rules.h"

namespace flux2 {

namespace {

using Values = NameRule::Values;

const std::vector<NameRule>& transformer_rules() {
  static const std::vector<NameRule> rules = {
      {"img_in.weight", {"x_embedder.weight"}},
      {"txt_in.weight", {"context_embedder.weight"}},
      {"time_in.in_layer.weight", {"time_guidance_embed.timestep_embedder.linear_1.weight"}},
      {"time_in.out_layer.weight", {"time_guidance_embed.timestep_embedder.linear_2.weight"}},
      {"guidance_in.in_layer.weight", {"time_guidance_embed.guidance_embedder.linear_1.weight"}},
      {"guidance_in.out_layer.weight", {"time_guidance_embed.guidance_embedder.linear_2.weight"}},
      {"double_stream_modulation_img.lin.weight", {"double_stream_modulation_img.linear.weight"}},
      {"double_stream_modulation_txt.lin.weight", {"double_stream_modulation_txt.linear.weight"}},
      {"single_stream_modulation.lin.weight", {"single_stream_modulation.linear.weight"}},

      {"double_blocks.{i}.img_attn.qkv.weight",
       {"transformer_blocks.{i}.attn.to_q.weight", "transformer_blocks.{i}.attn.to_k.weight",
        "transformer_blocks.{i}.attn.to_v.weight"}},
      {"double_blocks.{i}.txt_attn.qkv.weight",
       {"transformer_blocks.{i}.attn.add_q_proj.weight", "transformer_blocks.{i}.attn.add_k_proj.weight",
        "transformer_blocks.{i}.attn.add_v_proj.weight"}},
      {"double_blocks.{i}.img_attn.norm.query_norm.scale",
       {"transformer_blocks.{i}.attn.norm_q.weight"},
       Values::Same,
       "double_blocks.{i}.img_attn.norm.query_norm.weight"},
      {"double_blocks.{i}.img_attn.norm.key_norm.scale",
       {"transformer_blocks.{i}.attn.norm_k.weight"},
       Values::Same,
       "double_blocks.{i}.img_attn.norm.key_norm.weight"},
      {"double_blocks.{i}.txt_attn.norm.query_norm.scale",
       {"transformer_blocks.{i}.attn.norm_added_q.weight"},
       Values::Same,
       "double_blocks.{i}.txt_attn.norm.query_norm.weight"},
      {"double_blocks.{i}.txt_attn.norm.key_norm.scale",
       {"transformer_blocks.{i}.attn.norm_added_k.weight"},
       Values::Same,
       "double_blocks.{i}.txt_attn.norm.key_norm.weight"},
      {"double_blocks.{i}.img_attn.proj.weight", {"transformer_blocks.{i}.attn.to_out.0.weight"}},
      {"double_blocks.{i}.txt_attn.proj.weight", {"transformer_blocks.{i}.attn.to_add_out.weight"}},
      {"double_blocks.{i}.img_mlp.0.weight", {"transformer_blocks.{i}.ff.linear_in.weight"}},
      {"double_blocks.{i}.img_mlp.2.weight", {"transformer_blocks.{i}.ff.linear_out.weight"}},
      {"double_blocks.{i}.txt_mlp.0.weight", {"transformer_blocks.{i}.ff_context.linear_in.weight"}},
      {"double_blocks.{i}.txt_mlp.2.weight", {"transformer_blocks.{i}.ff_context.linear_out.weight"}},

      {"single_blocks.{i}.linear1.weight", {"single_transformer_blocks.{i}.attn.to_qkv_mlp_proj.weight"}},
      {"single_blocks.{i}.linear2.weight", {"single_transformer_blocks.{i}.attn.to_out.weight"}},
      {"single_blocks.{i}.norm.query_norm.scale",
       {"single_transformer_blocks.{i}.attn.norm_q.weight"},
       Values::Same,
       "single_blocks.{i}.norm.query_norm.weight"},
      {"single_blocks.{i}.norm.key_norm.scale",
       {"single_transformer_blocks.{i}.attn.norm_k.weight"},
       Values::Same,
       "single_blocks.{i}.norm.key_norm.weight"},

      {"final_layer.linear.weight", {"proj_out.weight"}},
      // (shift, scale) in original checkpoints, (scale, shift) in diffusers ones: the only values that move.
      {"final_layer.adaLN_modulation.1.weight", {"norm_out.linear.weight"}, Values::HalvesExchanged},
  };
  return rules;
}

const std::vector<NameRule>& autoencoder_rules() {
  static const std::vector<NameRule> rules = {
      {"encoder.conv_in.{wb}", {"encoder.conv_in.{wb}"}},
      {"encoder.down.{i}.block.{i}.{layer}.{wb}", {"encoder.down_blocks.{i}.resnets.{i}.{layer}.{wb}"}},
      {"encoder.down.{i}.block.{i}.nin_shortcut.{wb}", {"encoder.down_blocks.{i}.resnets.{i}.conv_shortcut.{wb}"}},
      {"encoder.down.{i}.downsample.conv.{wb}", {"encoder.down_blocks.{i}.downsamplers.0.conv.{wb}"}},
      {"encoder.mid.block_1.{layer}.{wb}", {"encoder.mid_block.resnets.0.{layer}.{wb}"}},
      {"encoder.mid.block_2.{layer}.{wb}", {"encoder.mid_block.resnets.1.{layer}.{wb}"}},
      {"encoder.mid.attn_1.norm.{wb}", {"encoder.mid_block.attentions.0.group_norm.{wb}"}},
      {"encoder.mid.attn_1.q.{wb}", {"encoder.mid_block.attentions.0.to_q.{wb}"}, Values::Convolution1x1},
      {"encoder.mid.attn_1.k.{wb}", {"encoder.mid_block.attentions.0.to_k.{wb}"}, Values::Convolution1x1},
      {"encoder.mid.attn_1.v.{wb}", {"encoder.mid_block.attentions.0.to_v.{wb}"}, Values::Convolution1x1},
      {"encoder.mid.attn_1.proj_out.{wb}", {"encoder.mid_block.attentions.0.to_out.0.{wb}"}, Values::Convolution1x1},
      {"encoder.norm_out.{wb}", {"encoder.conv_norm_out.{wb}"}},
      {"encoder.conv_out.{wb}", {"encoder.conv_out.{wb}"}},
      {"encoder.quant_conv.{wb}", {"quant_conv.{wb}"}},

      {"decoder.post_quant_conv.{wb}", {"post_quant_conv.{wb}"}},
      {"decoder.conv_in.{wb}", {"decoder.conv_in.{wb}"}},
      {"decoder.mid.block_1.{layer}.{wb}", {"decoder.mid_block.resnets.0.{layer}.{wb}"}},
      {"decoder.mid.block_2.{layer}.{wb}", {"decoder.mid_block.resnets.1.{layer}.{wb}"}},
      {"decoder.mid.attn_1.norm.{wb}", {"decoder.mid_block.attentions.0.group_norm.{wb}"}},
      {"decoder.mid.attn_1.q.{wb}", {"decoder.mid_block.attentions.0.to_q.{wb}"}, Values::Convolution1x1},
      {"decoder.mid.attn_1.k.{wb}", {"decoder.mid_block.attentions.0.to_k.{wb}"}, Values::Convolution1x1},
      {"decoder.mid.attn_1.v.{wb}", {"decoder.mid_block.attentions.0.to_v.{wb}"}, Values::Convolution1x1},
      {"decoder.mid.attn_1.proj_out.{wb}", {"decoder.mid_block.attentions.0.to_out.0.{wb}"}, Values::Convolution1x1},
      // The original counts decoder levels from the picture, diffusers from the latents.
      {"decoder.up.{level}.block.{i}.{layer}.{wb}", {"decoder.up_blocks.{3-level}.resnets.{i}.{layer}.{wb}"}},
      {"decoder.up.{level}.block.{i}.nin_shortcut.{wb}", {"decoder.up_blocks.{3-level}.resnets.{i}.conv_shortcut.{wb}"}},
      {"decoder.up.{level}.upsample.conv.{wb}", {"decoder.up_blocks.{3-level}.upsamplers.0.conv.{wb}"}},
      {"decoder.norm_out.{wb}", {"decoder.conv_norm_out.{wb}"}},
      {"decoder.conv_out.{wb}", {"decoder.conv_out.{wb}"}},

      {"bn.running_mean", {"bn.running_mean"}},
      {"bn.running_var", {"bn.running_var"}},
      {"bn.num_batches_tracked", {"bn.num_batches_tracked"}},
  };
  return rules;
}

// diffusers stores text encoders as transformers does.
const std::vector<NameRule>& text_encoder_rules() {
  static const std::vector<NameRule> rules = [] {
    std::vector<NameRule> list;
    struct Names {
      std::string_view name, ggml, native;
    };
    for (const auto& [name, ggml, native] : std::initializer_list<Names>{
             {"model.embed_tokens.weight", "token_embd.weight", "tok_embeddings.weight"},
             {"model.layers.{i}.input_layernorm.weight", "blk.{i}.attn_norm.weight", "layers.{i}.attention_norm.weight"},
             {"model.layers.{i}.post_attention_layernorm.weight", "blk.{i}.ffn_norm.weight", "layers.{i}.ffn_norm.weight"},
             {"model.layers.{i}.self_attn.q_proj.weight", "blk.{i}.attn_q.weight", "layers.{i}.attention.wq.weight"},
             {"model.layers.{i}.self_attn.k_proj.weight", "blk.{i}.attn_k.weight", "layers.{i}.attention.wk.weight"},
             {"model.layers.{i}.self_attn.v_proj.weight", "blk.{i}.attn_v.weight", "layers.{i}.attention.wv.weight"},
             {"model.layers.{i}.self_attn.o_proj.weight", "blk.{i}.attn_output.weight", "layers.{i}.attention.wo.weight"},
             {"model.layers.{i}.self_attn.q_norm.weight", "blk.{i}.attn_q_norm.weight", ""},
             {"model.layers.{i}.self_attn.k_norm.weight", "blk.{i}.attn_k_norm.weight", ""},
             {"model.layers.{i}.mlp.gate_proj.weight", "blk.{i}.ffn_gate.weight", "layers.{i}.feed_forward.w1.weight"},
             {"model.layers.{i}.mlp.up_proj.weight", "blk.{i}.ffn_up.weight", "layers.{i}.feed_forward.w3.weight"},
             {"model.layers.{i}.mlp.down_proj.weight", "blk.{i}.ffn_down.weight", "layers.{i}.feed_forward.w2.weight"},
             {"model.norm.weight", "output_norm.weight", "norm.weight"},
             {"lm_head.weight", "output.weight", "output.weight"}})
      list.push_back({.canonical = name, .diffusers = {name}, .ggml = ggml, .native = native});
    // The eyes of a model that also sees: Pixtral's tower and the projector behind it.
    for (const std::string_view name :
         {"vision_tower.patch_conv.weight", "vision_tower.ln_pre.weight",
          "vision_tower.transformer.layers.{i}.attention_norm.weight", "vision_tower.transformer.layers.{i}.ffn_norm.weight",
          "vision_tower.transformer.layers.{i}.attention.q_proj.weight",
          "vision_tower.transformer.layers.{i}.attention.k_proj.weight",
          "vision_tower.transformer.layers.{i}.attention.v_proj.weight",
          "vision_tower.transformer.layers.{i}.attention.o_proj.weight",
          "vision_tower.transformer.layers.{i}.feed_forward.gate_proj.weight",
          "vision_tower.transformer.layers.{i}.feed_forward.up_proj.weight",
          "vision_tower.transformer.layers.{i}.feed_forward.down_proj.weight", "multi_modal_projector.norm.weight",
          "multi_modal_projector.patch_merger.merging_layer.weight", "multi_modal_projector.linear_1.weight",
          "multi_modal_projector.linear_2.weight"})
      list.push_back({.canonical = name, .diffusers = {name}});
    return list;
  }();
  return rules;
}

constexpr PrefixRule kTransformerPrefixes[] = {{"model.diffusion_model."}, {"diffusion_model."}, {"model."}, {"transformer."}};
constexpr PrefixRule kAutoencoderPrefixes[] = {{"vae."}, {"first_stage_model."}};
constexpr PrefixRule kTextEncoderPrefixes[] = {{"model.language_model.", "model."},
                                               {"language_model."},
                                               {"text_encoder."},
                                               {"text_encoders.*.transformer."},
                                               {"", "model."}};

}  // namespace

std::span<const NameRule> rules_for(ModelPart part) {
  switch (part) {
    case ModelPart::Transformer: return transformer_rules();
    case ModelPart::Autoencoder: return autoencoder_rules();
    case ModelPart::TextEncoder: return text_encoder_rules();
  }
  return {};
}

std::span<const PrefixRule> prefixes_for(ModelPart part) {
  switch (part) {
    case ModelPart::Transformer: return kTransformerPrefixes;
    case ModelPart::Autoencoder: return kAutoencoderPrefixes;
    case ModelPart::TextEncoder: return kTextEncoderPrefixes;
  }
  return {};
}

std::string_view block_of(std::string_view canonical) {
  for (const std::string_view list : {"blocks.", "layers."})
    if (const size_t at = canonical.find(list); at != std::string_view::npos)
      return canonical.substr(0, canonical.find('.', at + list.size()));
  return {};
}

const char* name_of(ModelPart part) {
  switch (part) {
    case ModelPart::Transformer: return "transformer";
    case ModelPart::Autoencoder: return "autoencoder";
    case ModelPart::TextEncoder: return "text encoder";
  }
  return "";
}

const char* name_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::Canonical: return "original";
    case Dialect::Diffusers: return "diffusers";
    case Dialect::Ggml: return "GGUF";
    case Dialect::MistralNative: return "Mistral's own";
  }
  return "";
}

}  // namespace flux2
