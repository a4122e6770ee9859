#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// A request as the user states it: every field may be absent, and nothing has been checked against a model yet. Front ends fill
// it in from options, JSON or an image's record; app/resolve.h turns it into a Request. The table of fields (request_fields.h)
// defines every member once, with its range and where it may be set.
struct RequestSpec {
  using Text = std::optional<std::string>;
  using Texts = std::optional<std::vector<std::string>>;
  using Integer = std::optional<int64_t>;
  using Number = std::optional<double>;
  using Flag = std::optional<bool>;

  // What to draw.
  Text prompt, negative, style, preset, wildcards;
  Integer width, height;
  Integer seed;  // -1: random
  Integer batch, repeat;
  Text variation, tile;
  Texts region, region_mask, region_reference;  // prompts for parts of the image
  Texts image_prompt;                           // images as prompts (record/image_prompt_text.h)
  Text image_prompt_adapter, image_prompt_encoder;
  // More passes over a generated image: the whole at a larger size, then one part.
  Number hires, hires_strength, detail_strength;
  Text hires_method, detail_mask;
  Texts detail_box;
  Text from, remix;  // an image whose settings are reused
  Texts lora;
  Text lora_mode;
  Flag strict;
  Text moderation;

  // Who rewrites the prompt, and how. `rewritten_prompt` is one that was rewritten already: it is used instead of `prompt`.
  Text upsample, rewritten_prompt, upsample_model, upsample_url, upsample_key_env, upsample_params;
  Text upsample_system_t2i, upsample_system_edit;
  Integer upsample_max_tokens;
  Number upsample_timeout;
  Flag upsample_each, upsample_full_size, upsample_no_images;

  // Images to start from.
  Texts input;
  Number strength;
  Text context, match, ref_pixels, ref_prep, ref_kv;
  Flag no_negative_refs, no_resize_ref;

  // Which part of an image to regenerate.
  Text mask, mask_from_diff, mask_text, mask_service;
  Number mask_confidence;
  Texts mask_box, mask_ellipse, mask_polygon, mask_wand, mask_color, mask_points;
  Flag mask_invert;
  Integer grow, feather;
  Text crop, extend, inpaint_mode, align;

  // Which model.
  Text model, dit, vae, text_encoder, tokenizer;
  Flag base;

  // How it is sampled.
  Integer steps;
  Number guidance, cfg, cfg_scale, shift, deadline;
  Text schedule, noise, time_rounding, sampler, cache;

  // Where it runs.
  Text device, profile, vae_tile, vae_dtype, quant, quant_text_encoder, quant_cache, attention, offload;
  Integer threads, blocks_to_swap;
  Number max_vram, max_ram, text_cache;

  // What is written.
  Text output, format, rounding, metadata, preview, preview_file;
  Integer quality;
  Flag is_private, no_provenance, sidecar;
  Text watermark;
  Flag watermark_kept;
  Text embeddings, noise_file, latents_out, trace, output_type;
  Texts latent_path;

  // Where a value was set, as messages name it: "--steps", "FLUX2_STEPS", "generate.steps in flux2.toml". A field that is
  // missing here is called by its own name.
  std::map<std::string, std::string, std::less<>> origins;
  std::string origin(std::string_view field) const;

  // Fields that were set by configuration or a preset: the user's defaults rather than part of this request.
  std::set<std::string, std::less<>> defaults;
  bool is_asked(std::string_view field) const;  // set, and not by a default

  // Fields whose value comes from a file of somebody else. A model there is a name, never a path.
  std::set<std::string, std::less<>> names_only;
};

}  // namespace flux2
