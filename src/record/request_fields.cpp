#include "record/request_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "image/mask_shapes.h"
#include "image/watermark.h"
#include "image/write_image.h"
#include "net/url.h"
#include "pipeline/noise.h"
#include "pipeline/picture_size.h"
#include "pipeline/regions.h"
#include "pipeline/schedule.h"
#include "pipeline/step_cache.h"
#include "record/image_prompt_text.h"
#include "record/picture_metadata.h"

namespace flux2 {

namespace {

constexpr double kMaxSeed = 9223372036854775807.0;
constexpr double kAnySide = 1 << 20;  // anything a person may type; the rules of sizes answer for the rest

void check_schedule(const std::string& text) { parse_schedule(text); }
void check_noise(const std::string& text) { parse_noise(text); }
void check_format(const std::string& text) { format_from_name(text); }
void check_metadata(const std::string& text) { MetadataChoice::parse(text); }
void check_cache(const std::string& text) { cache_tolerance(text); }

void check_watermark(const std::string& text) {
  if (text != "off") watermark_bits(text);
}
void check_box(const std::string& text) { parse_box(text); }
void check_polygon(const std::string& text) { parse_polygon(text); }
void check_wand(const std::string& text) { parse_wand(text); }
void check_mask_color(const std::string& text) { parse_colour_choice(text); }
void check_mask_point(const std::string& text) { parse_mask_point(text); }
void check_region(const std::string& text) { parse_region(text); }
void check_region_file(const std::string& text) { parse_region_file(text); }
void check_image_prompt_text(const std::string& text) { parse_image_prompt(text); }
void check_variation(const std::string& text) { parse_variation(text); }
void check_margins(const std::string& text) {
  check(four_numbers(text).has_value(), "\"{}\" is not left,top,right,bottom in pixels", text);
}

void check_url(const std::string& text) { parse_url(text); }
void check_json_object(const std::string& text) {
  const auto json = try_parse_json(text);
  check(json && json->is_object(), "\"{}\" is not a JSON object", printable(text));
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "off", "auto" or a number from low to high.
void check_number_or(const std::string& text, std::initializer_list<std::string_view> words, int64_t low, int64_t high) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return;
  const auto number = whole_number(text);
  check(number && *number >= low && *number <= high, "\"{}\" is not {} or a whole number from {} to {}", text,
        fmt::join(words, ", "), low, high);
}
void check_crop(const std::string& text) { check_number_or(text, {"auto", "off"}, 0, 4096); }
void check_tile(const std::string& text) { check_number_or(text, {"auto", "off"}, 128, 4096); }
void check_quant_cache(const std::string& text) { check_number_or(text, {"auto", "off"}, 1, 1 << 20); }
void check_match(const std::string& text) { check_number_or(text, {"off"}, 1, 16); }
void check_reference_pixels(const std::string& text) {
  constexpr int64_t kFewest = 64 * 64, kMost = 4096 * 4096;
  int64_t pixels = whole_number(text).value_or(0);
  if (text.find('x') != text.npos) {
    const PictureSize size = parse_picture_size(text);
    pixels = int64_t{size.width} * size.height;
  }
  check(pixels >= kFewest && pixels <= kMost, "\"{}\" is not an area from {} to {} pixels", text, kFewest, kMost);
}

using R = RequestSpec;
using T = FieldType;

std::vector<Field> make_fields() {
  return {
      // What to draw.
      {.name = "prompt",
       .unit = "TEXT",
       .help = "what to draw; you can also give it as the argument; - reads standard input",
       .member = &R::prompt,
       .record_key = "prompt",
       .is_private = true,
       .common = true},
      {.name = "negative",
       .unit = "TEXT",
       .help = "what to avoid; needs true guidance (base models, or <cfg>)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::negative,
       .record_key = "negative",
       .is_private = true,
       .common = true},
      {.name = "wildcards",
       .unit = "FOLDER|off",
       .help = "folder with the files for __name__ in prompts (default: wildcards/ in the current folder, then in the data "
               "folder); off: do not replace __name__ and {a|b}",
       .section = "generate",
       .member = &R::wildcards,
       .suggestions = {"off"}},
      {.name = "style",
       .unit = "NAME",
       .help = "name of a prompt template; <style> list shows all",
       .section = "generate",
       .project = Field::Always,
       .member = &R::style,
       .suggestions = {"list"}},
      {.name = "preset",
       .type = T::Choice,
       .unit = "NAME",
       .help = "draft, standard or best: steps and size that suit the model",
       .section = "generate",
       .project = Field::Always,
       .member = &R::preset,
       .choices = {"draft", "standard", "best"},
       .common = true},
      {.name = "width",
       .type = T::Integer,
       .unit = "PX",
       .help = "64 to 4096, a multiple of 16 (default: the model's)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::width,
       .low = 1,
       .high = kAnySide,
       .record_key = "width"},
      {.name = "height",
       .type = T::Integer,
       .unit = "PX",
       .help = "like <width>",
       .section = "generate",
       .project = Field::Always,
       .member = &R::height,
       .low = 1,
       .high = kAnySide,
       .record_key = "height"},
      {.name = "size",
       .type = T::Size,
       .unit = "WxH|PX|NAME",
       .help = "size of the image: 1360x768, 1024, square, landscape, portrait, 1:1, 4:3, 3:4, 3:2, 2:3, 16:9, 9:16, 21:9",
       .section = "generate",
       .project = Field::Always,
       .common = true,
       .suggestions = {"square", "landscape", "portrait", "1:1", "4:3", "3:4", "3:2", "2:3", "16:9", "9:16", "21:9", "512", "768",
                       "1024"}},
      {.name = "seed",
       .type = T::Seed,
       .unit = "N",
       .help = "0 to 2^63-1, -1 or random (default: random)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::seed,
       .low = -1,
       .high = kMaxSeed,
       .record_key = "seed",
       .a1111_key = "Seed",
       .common = true,
       .suggestions = {"random"}},
      {.name = "batch",
       .type = T::Integer,
       .unit = "N",
       .help = "number of images; seeds count up from <seed> (default: 1)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::batch,
       .low = 1,
       .high = 1e6,
       .common = true},
      {.name = "repeat",
       .type = T::Integer,
       .unit = "N",
       .help = "repeat everything with new seeds (default: 1)",
       .section = "generate",
       .member = &R::repeat,
       .low = 1,
       .high = 1e9},
      {.name = "variation",
       .unit = "SEED:STRENGTH",
       .help = "a similar image: mixes the noise of another seed into that of <seed>, 0 (no change) to 1 (the other seed); with "
               "<batch>, SEED counts up",
       .member = &R::variation,
       .check_text = check_variation,
       .record_key = "variation"},
      {.name = "tile",
       .type = T::Choice,
       .unit = "x|y|both|off",
       .help = "seamless image: the right edge continues at the left one (x), the bottom at the top (y) (default: off)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::tile,
       .choices = {"off", "x", "y", "both"},
       .record_key = "tile"},
      {.name = "hires",
       .type = T::Number,
       .unit = "SCALE",
       .help = "generate the image, enlarge it this many times, 1 to 4, and generate the large image from it (default: 1)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::hires,
       .low = 1,
       .high = 4,
       .record_key = "hires.scale",
       .a1111_key = "Hires upscale"},
      {.name = "hires_strength",
       .type = T::Number,
       .unit = "X",
       .help = "how much <hires> generates again, 0 (one step) to 1 (everything) (default: 0.3)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::hires_strength,
       .low = 0,
       .high = 1,
       .record_key = "hires.strength"},
      {.name = "hires_method",
       .type = T::Choice,
       .unit = "image|latents",
       .help = "what <hires> enlarges: the decoded image, or the latents, which saves decoding and encoding (default: image)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::hires_method,
       .choices = {"image", "latents"},
       .record_key = "hires.method"},
      {.name = "detail_mask",
       .unit = "FILE",
       .help = "generate the white area of this mask once more, enlarged, and put it back: more detail in a face or a small "
               "object",
       .member = &R::detail_mask},
      {.name = "detail_box",
       .type = T::Texts,
       .unit = "X,Y,W,H",
       .help = "the same for a rectangle of the final image; may be repeated",
       .member = &R::detail_box,
       .check_text = check_box,
       .record_key = "detail.boxes"},
      {.name = "detail_strength",
       .type = T::Number,
       .unit = "X",
       .help = "how much of that area is generated again, 0 to 1 (default: 0.4)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::detail_strength,
       .low = 0,
       .high = 1,
       .record_key = "detail.strength"},
      {.name = "region",
       .type = T::Texts,
       .unit = "PROMPT[@X,Y,W,H]",
       .help =
           "a prompt for one part of the image: a rectangle in pixels, or without it the next <region_mask>; the prompt itself "
           "is for the rest of the image; may be repeated, up to 16",
       .member = &R::region,
       .check_text = check_region,
       .record_key = "regions",
       .is_private = true},
      {.name = "region_mask",
       .type = T::Texts,
       .unit = "FILE",
       .help = "the area of a <region> without a rectangle: white is inside; if the file has an alpha channel, transparent areas "
               "are inside; may be repeated, in the order of the regions",
       .member = &R::region_mask},
      {.name = "region_reference",
       .type = T::Texts,
       .unit = "N:FILE",
       .help = "an image that only region N refers to, counted from 1; may be repeated",
       .member = &R::region_reference,
       .check_text = check_region_file},
      {.name = "image_prompt",
       .type = T::Texts,
       .unit = "FILE[:STRENGTH[:FROM-TO]]",
       .help =
           "an image as a prompt: the result resembles it in colour, content and style; strength 0 to 2 (default: 1), and the "
           "part of the steps in which it counts, 0 to 1; needs <image_prompt_adapter>; may be repeated, up to 16",
       .member = &R::image_prompt,
       .check_text = check_image_prompt_text},
      {.name = "image_prompt_adapter",
       .unit = "PATH|NAME",
       .help = "adapter that turns images into prompts for this model: a file, a folder or a registered name",
       .section = "generate",
       .member = &R::image_prompt_adapter},
      {.name = "image_prompt_encoder",
       .unit = "PATH|NAME",
       .help = "CLIP vision encoder that the adapter was trained with: a file, a folder or a registered name (default: a "
               "registered one that fits the adapter)",
       .section = "generate",
       .member = &R::image_prompt_encoder},
      {.name = "from", .unit = "FILE", .help = "reuse the settings of this image", .member = &R::from},
      {.name = "remix", .unit = "FILE", .help = "reuse the settings of this image with a new seed", .member = &R::remix},
      {.name = "lora",
       .type = T::Texts,
       .unit = "FILE|NAME[:W[:LAYERS]]",
       .help = "adapter (LoRA, DoRA, LoHa, LoKr, OFT), its strength (default: 1) and a pattern like double_blocks, !mlp or "
               "double_blocks&!mlp for the layers it may change; <lora:NAME:W> in the prompt does the same",
       .member = &R::lora,
       .common = true},
      {.name = "lora_mode",
       .type = T::Choice,
       .unit = "MODE",
       .help = "runtime: keep adapters separate from the weights; merge: add them to the weights while loading; auto: the same "
               "as runtime (default: auto)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::lora_mode,
       .choices = {"auto", "runtime", "merge"},
       .loads_model = true},
      {.name = "upsample",
       .type = T::Choice,
       .unit = "WAY",
       .help = "let a language model rewrite the prompt before use: none, local (the model's own text encoder), http (a chat "
               "server, <upsample_url>), openrouter or ollama (default: none)",
       .section = "generate",
       .member = &R::upsample,
       .choices = {"none", "local", "http", "openrouter", "ollama"}},
      {.name = "upsample_model",
       .unit = "NAME",
       .help = "model that rewrites, as the service calls it (default of openrouter: mistralai/pixtral-large-2411)",
       .section = "upsample",
       .member = &R::upsample_model},
      {.name = "upsample_url",
       .unit = "URL",
       .help = "http: address of a server with /chat/completions, ending in /v1; ollama: address of Ollama (default: "
               "MILIMO_OLLAMA_URL, else http://localhost:11434)",
       .section = "upsample",
       .member = &R::upsample_url,
       .check_text = check_url},
      {.name = "upsample_key_env",
       .unit = "NAME",
       .help = "environment variable with the key of the service (default: OPENROUTER_API_KEY for openrouter, none for http)",
       .section = "upsample",
       .member = &R::upsample_key_env},
      {.name = "upsample_params",
       .unit = "JSON",
       .help = "further members of the request to the service, like {\"temperature\": 0.7}",
       .section = "upsample",
       .member = &R::upsample_params,
       .check_text = check_json_object},
      {.name = "upsample_max_tokens",
       .type = T::Integer,
       .unit = "N",
       .help = "length of a rewritten prompt, 1 to 4096 tokens (default: 512)",
       .section = "upsample",
       .member = &R::upsample_max_tokens,
       .low = 1,
       .high = 4096},
      {.name = "upsample_timeout",
       .type = T::Number,
       .unit = "S",
       .help = "longest time for rewriting one prompt (default: 60; local: 120)",
       .section = "upsample",
       .member = &R::upsample_timeout,
       .low = 0.1,
       .high = 3600},
      {.name = "upsample_each",
       .type = T::Flag,
       .help = "rewrite the prompt again for each image of a batch",
       .section = "upsample",
       .member = &R::upsample_each},
      {.name = "upsample_no_images",
       .type = T::Flag,
       .help = "do not send reference images to the service",
       .section = "upsample",
       .member = &R::upsample_no_images},
      {.name = "upsample_full_size",
       .type = T::Flag,
       .help = "send reference images as PNG without scaling them down",
       .section = "upsample",
       .member = &R::upsample_full_size},
      {.name = "upsample_system_t2i",
       .unit = "FILE",
       .help = "instructions for rewriting a prompt (default: built in)",
       .section = "upsample",
       .member = &R::upsample_system_t2i},
      {.name = "upsample_system_edit",
       .unit = "FILE",
       .help = "instructions for rewriting the prompt of an edit (default: built in)",
       .section = "upsample",
       .member = &R::upsample_system_edit},
      {.name = "rewritten_prompt",
       .unit = "TEXT",
       .help = "a prompt that was rewritten before: used instead of the prompt, and both are recorded",
       .member = &R::rewritten_prompt,
       .record_key = "rewritten_prompt",
       .a1111_key = "Rewritten prompt",
       .is_private = true},
      {.name = "element", .type = T::Texts, .unit = "NAME", .help = "studio element", .later = true},

      // Pictures to start from.
      {.name = "input",
       .type = T::Texts,
       .unit = "FILE",
       .help = "image to edit or to refer to, up to 16; the first is \"image 1\" in a prompt; - reads standard input",
       .member = &R::input,
       .common = true},
      {.name = "strength",
       .type = T::Number,
       .unit = "X",
       .help = "start from the first image with noise added: near 0 keeps it, 1 ignores it (default: 1)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::strength,
       .low = 0,
       .high = 1,
       .record_key = "strength",
       .a1111_key = "Denoising strength"},
      {.name = "context",
       .type = T::Choice,
       .unit = "refs|none",
       .help = "refs: also use the image that a run starts from as a reference; none: do not (default: refs)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::context,
       .choices = {"refs", "none"},
       .record_key = "context"},
      {.name = "no_negative_refs",
       .type = T::Flag,
       .help = "with true guidance, use the references only in the pass with the prompt, not in the negative pass",
       .section = "generate",
       .project = Field::Always,
       .member = &R::no_negative_refs,
       .record_key = "!negative_references"},
      {.name = "match",
       .unit = "N|off",
       .help = "use the size of reference N (default: 1 unless a size is given)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::match,
       .check_text = check_match,
       .suggestions = {"1", "off"}},
      {.name = "ref_pixels",
       .unit = "N|WxH",
       .help = "scale larger references down to this area (default: 2024x2024 for one, 1024x1024 for several)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::ref_pixels,
       .check_text = check_reference_pixels},
      {.name = "no_resize_ref",
       .type = T::Flag,
       .help = "do not scale references down",
       .section = "generate",
       .project = Field::Always,
       .member = &R::no_resize_ref},
      {.name = "ref_prep",
       .type = T::Choice,
       .unit = "NAME",
       .help = "how references are prepared: ours (EXIF orientation applied, alpha over white), bfl or diffusers (default: ours)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::ref_prep,
       .choices = {"ours", "bfl", "diffusers"}},

      // Which part of a picture to regenerate.
      {.name = "mask",
       .unit = "FILE",
       .help = "white areas are regenerated, black areas are kept, grey areas are blended; if the mask has an alpha channel, "
               "alpha is used instead; scaled to the image's size; - reads standard input",
       .member = &R::mask},
      {.name = "mask_box",
       .type = T::Texts,
       .unit = "X,Y,W,H",
       .help = "a rectangle to regenerate; may be repeated",
       .member = &R::mask_box,
       .check_text = check_box,
       .record_key = "mask.boxes"},
      {.name = "mask_ellipse",
       .type = T::Texts,
       .unit = "X,Y,W,H",
       .help = "the ellipse in this rectangle; may be repeated",
       .member = &R::mask_ellipse,
       .check_text = check_box,
       .record_key = "mask.ellipses"},
      {.name = "mask_polygon",
       .type = T::Texts,
       .unit = "X,Y X,Y X,Y…",
       .help = "the area inside these corners; may be repeated",
       .member = &R::mask_polygon,
       .check_text = check_polygon,
       .record_key = "mask.polygons"},
      {.name = "mask_wand",
       .type = T::Texts,
       .unit = "X,Y[:TOLERANCE]",
       .help = "the connected area around a point whose colour differs by at most TOLERANCE, 0 to 255 (default: 32); may be "
               "repeated",
       .member = &R::mask_wand,
       .check_text = check_wand,
       .record_key = "mask.wands"},
      {.name = "mask_color",
       .type = T::Texts,
       .unit = "#RRGGBB[:TOLERANCE]",
       .help = "every pixel of this colour, with a tolerance as for <mask_wand>; may be repeated",
       .member = &R::mask_color,
       .check_text = check_mask_color,
       .record_key = "mask.colors"},
      {.name = "mask_from_diff",
       .unit = "FILE",
       .help = "the pixels in which this image differs from the image to change",
       .member = &R::mask_from_diff},
      {.name = "mask_invert",
       .type = T::Flag,
       .help = "swap the areas that are kept and regenerated",
       .member = &R::mask_invert,
       .record_key = "mask.inverted"},
      {.name = "grow",
       .type = T::Integer,
       .unit = "PX",
       .help = "widen the mask, 0 to 256 (default: 8)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::grow,
       .low = 0,
       .high = 256,
       .record_key = "mask.grow"},
      {.name = "feather",
       .type = T::Integer,
       .unit = "PX",
       .help = "soften the edge of the mask, 0 to 256 (default: 8)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::feather,
       .low = 0,
       .high = 256,
       .record_key = "mask.feather"},
      {.name = "crop",
       .unit = "auto|off|PX",
       .help = "work on the masked area and PX pixels around it; auto uses 32 when the mask is small (default: auto)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::crop,
       .check_text = check_crop,
       .record_key = "mask.crop",
       .suggestions = {"auto", "off"}},
      {.name = "extend",
       .unit = "L,T,R,B",
       .help = "enlarge the canvas by these margins and fill them",
       .member = &R::extend,
       .check_text = check_margins,
       .record_key = "mask.extended"},
      {.name = "inpaint_mode",
       .type = T::Choice,
       .unit = "NAME",
       .help = "ours, or diffusers: work like the klein inpaint pipeline of diffusers (default: ours)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::inpaint_mode,
       .choices = {"ours", "diffusers"},
       .record_key = "mask.mode"},
      {.name = "align",
       .type = T::Choice,
       .unit = "on|off",
       .help = "correct shift, scale and colour of the result to match the part of the image that is kept (default: on)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::align,
       .choices = {"on", "off"},
       .record_key = "mask.aligned"},
      {.name = "mask_text",
       .unit = "TEXT",
       .help = "what these words name, like \"the red car\"; needs a mask service",
       .member = &R::mask_text,
       .record_key = "mask.text"},
      {.name = "mask_points",
       .type = T::Texts,
       .unit = "X,Y[:0]",
       .help = "the object at this point; may be repeated, and :0 marks a place that does not belong to it; needs a mask service",
       .member = &R::mask_points,
       .check_text = check_mask_point,
       .record_key = "mask.points"},
      {.name = "mask_confidence",
       .type = T::Number,
       .unit = "X",
       .help = "how sure the mask service must be for <mask_text>, 0 to 1 (default: 0.5)",
       .section = "masks",
       .member = &R::mask_confidence,
       .low = 0,
       .high = 1,
       .record_key = "mask.confidence"},
      {.name = "mask_service",
       .unit = "URL",
       .help = "address of the mask service (default: http://127.0.0.1:8001)",
       .section = "masks",
       .member = &R::mask_service,
       .check_text = check_url},

      // Which model.
      {.name = "model",
       .unit = "NAME|PATH",
       .help = "registered name or key, variant id, file or folder (default: the configured, installed or bundled one)",
       .section = "generate",
       .project = Field::ByName,
       .member = &R::model,
       .chooses_model = true,
       .common = true},
      {.name = "dit",
       .unit = "PATH|NAME",
       .help = "transformer weights",
       .section = "generate",
       .member = &R::dit,
       .chooses_model = true},
      {.name = "vae",
       .unit = "PATH|NAME",
       .help = "autoencoder weights: a file, a folder or a registered name",
       .section = "generate",
       .member = &R::vae,
       .chooses_model = true},
      {.name = "text_encoder",
       .unit = "PATH|NAME",
       .help = "text encoder: a file, the first shard, a folder or a registered name",
       .section = "generate",
       .member = &R::text_encoder,
       .chooses_model = true},
      {.name = "tokenizer",
       .unit = "PATH|NAME",
       .help = "tokenizer folder, tokenizer.json or a registered name",
       .section = "generate",
       .member = &R::tokenizer,
       .chooses_model = true},
      {.name = "base",
       .type = T::Flag,
       .help = "treat the model as a base model (not distilled): more steps, true guidance",
       .member = &R::base,
       .chooses_model = true},

      // How it is sampled.
      {.name = "steps",
       .type = T::Integer,
       .unit = "N",
       .help = "1 to 256 (default: the model's)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::steps,
       .low = 1,
       .high = 1000,
       .record_key = "steps",
       .a1111_key = "Steps",
       .common = true},
      {.name = "guidance",
       .type = T::Number,
       .unit = "X",
       .help = "base models: strength of true guidance; dev: guidance input of the network; fixed for distilled models",
       .section = "generate",
       .project = Field::Always,
       .member = &R::guidance,
       .low = 0,
       .high = 100,
       .record_key = "guidance",
       .common = true},
      {.name = "cfg",
       .type = T::Number,
       .unit = "X",
       .help = "strength of true guidance with the negative prompt, for any model; doubles the time",
       .section = "generate",
       .project = Field::Always,
       .member = &R::cfg,
       .low = 0,
       .high = 100,
       .record_key = "cfg"},
      {.name = "cfg_scale", .type = T::Number, .unit = "X", .member = &R::cfg_scale, .low = 0, .high = 100},
      {.name = "schedule",
       .unit = "NAME",
       .help = "model, linear, power[:a] or sigmas:a,b,… (default: model)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::schedule,
       .check_text = check_schedule,
       .record_key = "schedule",
       .a1111_key = "Schedule type",
       .suggestions = {"model", "linear", "power", "sigmas:"}},
      {.name = "shift",
       .type = T::Number,
       .unit = "X",
       .help = "shift of the schedule (default: computed from size and steps)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::shift,
       .low = 1e-3,
       .high = 1000,
       .record_key = "shift"},
      {.name = "noise",
       .unit = "NAME",
       .help = "torch-cpu, torch-cuda[:SMSxTHREADS] or grid (default: torch-cpu)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::noise,
       .check_text = check_noise,
       .record_key = "noise",
       .a1111_key = "RNG",
       .suggestions = {"torch-cpu", "torch-cuda", "grid"}},
      {.name = "time_rounding",
       .type = T::Choice,
       .unit = "NAME",
       .help = "how the time input is rounded: exact, bfl or diffusers (default: exact)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::time_rounding,
       .choices = {"exact", "bfl", "diffusers"},
       .record_key = "time_rounding"},
      {.name = "sampler",
       .type = T::Choice,
       .unit = "NAME",
       .help = "euler, heun (two passes per step) or dpmpp2m (default: euler)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::sampler,
       .choices = {"euler", "heun", "dpmpp2m"},
       .record_key = "sampler",
       .a1111_key = "Sampler"},
      {.name = "cache",
       .unit = "auto|off|X",
       .help = "leave out steps whose result can be foretold: auto (the same as 0.1), or the largest relative error X of such a "
               "step; "
               "about twice as fast from 20 steps on (default: off)",
       .section = "memory",
       .project = Field::Always,
       .member = &R::cache,
       .check_text = check_cache,
       .record_key = "cache",
       .suggestions = {"auto", "off"}},
      {.name = "deadline",
       .type = T::Number,
       .unit = "S",
       .help = "stop with an error when an image takes longer than S seconds",
       .section = "generate",
       .project = Field::Always,
       .member = &R::deadline,
       .low = 0.001,
       .high = 1e7},

      // What is written.
      {.name = "output",
       .unit = "PATH",
       .help = "file, folder/ or pattern like {date}/{seq:05}-{seed}.{ext}; - is standard output",
       .section = "generate",
       .member = &R::output,
       .common = true},
      {.name = "format",
       .unit = "NAME",
       .help = "png, jpg, webp or ppm (default: from the file name, else png)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::format,
       .check_text = check_format,
       .suggestions = {"png", "jpg", "webp", "ppm"}},
      {.name = "quality",
       .type = T::Integer,
       .unit = "N",
       .help = "1 to 100 for jpg and webp (default: 95)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::quality,
       .low = 1,
       .high = 100},
      {.name = "rounding",
       .type = T::Choice,
       .unit = "NAME",
       .help = "how samples are rounded to 8 bits: nearest or trunc (default: nearest)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::rounding,
       .choices = {"nearest", "trunc"}},
      {.name = "metadata",
       .unit = "LIST",
       .help = "metadata in the image file: a list of a1111, json and comfy, or none (default: a1111,json)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::metadata,
       .check_text = check_metadata,
       .suggestions = {"a1111", "json", "comfy", "a1111,json", "a1111,json,comfy", "none"}},
      {.name = "private",
       .type = T::Flag,
       .help = "do not write the prompt and names into the image file",
       .section = "generate",
       .project = Field::Always,
       .member = &R::is_private},
      {.name = "no_provenance",
       .type = T::Flag,
       .help = "with <metadata> none: also leave out the mark that says that a model generated the image",
       .section = "generate",
       .member = &R::no_provenance},
      {.name = "sidecar",
       .type = T::Flag,
       .help = "also write the settings to IMAGE.json",
       .section = "generate",
       .project = Field::Always,
       .member = &R::sidecar},
      {.name = "watermark",
       .unit = "off|flux|HEX",
       .help = "invisible mark in the image: flux, as the reference program writes it, or 2 to 16 hexadecimal digits of your own "
               "(default: off)",
       .section = "safety",
       .member = &R::watermark,
       .check_text = check_watermark,
       .record_key = "watermark",
       .suggestions = {"off", "flux"}},
      {.name = "watermark_kept",
       .type = T::Flag,
       .help = "inpaint: allow <watermark>, although it changes the part of the image that is kept",
       .section = "safety",
       .member = &R::watermark_kept,
       .record_key = "mask.watermark_kept"},
      {.name = "preview",
       .type = T::Choice,
       .unit = "HOW",
       .help = "how steps are previewed: off, linear (fast, approximate), tiny (by a tiny autoencoder, such as taef2) or full "
               "(decoded) (default: tiny if one is registered, else linear)",
       .section = "ui",
       .project = Field::Always,
       .member = &R::preview,
       .choices = {"off", "linear", "tiny", "full"}},
      {.name = "preview_file", .unit = "FILE", .help = "write the preview to a file after each step", .member = &R::preview_file},
      {.name = "embeddings",
       .unit = "FILE",
       .help = "read text states (text.embeddings, negative.embeddings) from a file instead of running the text encoder",
       .member = &R::embeddings},
      {.name = "noise_file", .unit = "FILE", .help = "noise [128, h, w]: used instead of the seed", .member = &R::noise_file},
      {.name = "latents_out", .unit = "FILE", .help = "write the final latents [128, h, w]", .member = &R::latents_out},
      {.name = "output_type",
       .type = T::Choice,
       .unit = "WHAT",
       .help = "what to write: images, latent (latents in IMAGE.safetensors, without decoding) or latent_images (both) (default: "
               "images)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::output_type,
       .choices = {"images", "latent", "latent_images"}},
      {.name = "latent_path",
       .type = T::Texts,
       .unit = "FILE",
       .help = "decode latents from a file instead of generating an image; the file comes from <output_type>, <latents_out> or "
               "musubi-tuner",
       .member = &R::latent_path},
      {.name = "trace", .unit = "FILE", .help = "record every tensor of the run for comparison", .member = &R::trace},

      // Where it runs.
      {.name = "device",
       .unit = "NAME",
       .help = "auto, cpu, cuda or cuda:N (default: auto)",
       .section = "memory",
       .member = &R::device,
       .loads_model = true,
       .common = true,
       .suggestions = {"auto", "cpu", "cuda", "cuda:0"}},
      {.name = "threads",
       .type = T::Integer,
       .unit = "N",
       .help = "CPU threads (default: physical cores)",
       .section = "memory",
       .member = &R::threads,
       .low = 1,
       .high = 65536,
       .loads_model = true},
      {.name = "profile",
       .type = T::Choice,
       .unit = "NAME",
       .help = "fast, or exact: compute in f32, with results that do not depend on batch and threads (default: fast)",
       .section = "generate",
       .project = Field::Always,
       .member = &R::profile,
       .choices = {"fast", "exact"},
       .record_key = "profile",
       .a1111_key = "Profile",
       .loads_model = true},
      {.name = "vae_tile",
       .unit = "auto|off|PX",
       .help = "encode and decode images in tiles of PX pixels; auto: only if memory is short (default: auto)",
       .section = "memory",
       .member = &R::vae_tile,
       .check_text = check_tile,
       .loads_model = true,
       .suggestions = {"auto", "off", "512"}},
      {.name = "vae_dtype",
       .type = T::Choice,
       .unit = "TYPE",
       .help = "precision of decoding: float32 as in profile exact, bfloat16 as in profile fast (default: from <profile>)",
       .section = "memory",
       .project = Field::Always,
       .member = &R::vae_dtype,
       .choices = {"float32", "bfloat16"},
       .record_key = "vae_dtype",
       .loads_model = true},
      {.name = "quant",
       .type = T::Choice,
       .unit = "TYPE",
       .help = "quantise while loading, for speed and memory: int8, q8_0, q4_0, fp8 or none (default: none)",
       .section = "memory",
       .project = Field::Always,
       .member = &R::quant,
       .choices = {"none", "int8", "q8_0", "q4_0", "fp8"},
       .record_key = "model.quant_on_load",
       .loads_model = true,
       .common = true},
      {.name = "quant_text_encoder",
       .type = T::Choice,
       .unit = "TYPE",
       .help = "<quant> for the text encoder alone (default: the same as <quant>)",
       .section = "memory",
       .project = Field::Always,
       .member = &R::quant_text_encoder,
       .choices = {"none", "int8", "q8_0", "q4_0", "fp8"},
       .record_key = "model.text_encoder_quant",
       .loads_model = true},
      {.name = "quant_cache",
       .unit = "auto|off|GIB",
       .help = "on a CPU, keep the weights that <quant> quantised on disk for the next start, at most GIB in total; auto: at "
               "most 32 if the disk has room (default: auto)",
       .section = "memory",
       .member = &R::quant_cache,
       .check_text = check_quant_cache,
       .suggestions = {"auto", "off", "32"}},
      {.name = "offload",
       .type = T::Choice,
       .unit = "WAY",
       .help = "auto, none, encoder (unload the text encoder after use) or stream (load blocks as needed) (default: auto)",
       .section = "memory",
       .member = &R::offload,
       .choices = {"auto", "none", "encoder", "stream"},
       .loads_model = true},
      {.name = "blocks_to_swap",
       .type = T::Integer,
       .unit = "N",
       .help = "copy the last N blocks of the transformer from RAM in every step instead of keeping them on the GPU: slower, but "
               "needs less GPU memory; on a CPU, their pages may be released after use",
       .section = "memory",
       .member = &R::blocks_to_swap,
       .low = 0,
       .high = 1000,
       .loads_model = true},
      {.name = "max_vram",
       .type = T::Number,
       .unit = "GIB",
       .help = "GPU memory limit (default: what is free)",
       .section = "memory",
       .member = &R::max_vram,
       .low = 0.1,
       .high = 1e6,
       .loads_model = true},
      {.name = "max_ram",
       .type = T::Number,
       .unit = "GIB",
       .help = "with <device> cpu: memory limit (default: none)",
       .section = "memory",
       .member = &R::max_ram,
       .low = 0.1,
       .high = 1e6,
       .loads_model = true},
      {.name = "ref_kv",
       .type = T::Choice,
       .unit = "auto|on|off",
       .help = "compute the keys and values of references once and reuse them in every step; auto: only for models that were "
               "trained for this (default: auto)",
       .section = "memory",
       .project = Field::Always,
       .member = &R::ref_kv,
       .choices = {"auto", "on", "off"},
       .record_key = "ref_kv"},
      {.name = "text_cache",
       .type = T::Number,
       .unit = "GIB",
       .help = "keep text states on disk up to this size, so that a prompt is encoded once; 0 keeps none (default: 0)",
       .section = "memory",
       .member = &R::text_cache,
       .low = 0,
       .high = 1e6},
      {.name = "blocks_resident",
       .unit = "N",
       .help = "blocks kept on the device",
       .section = "memory",
       .later = true,
       .harmless = {"auto"}},
      {.name = "place",
       .unit = "dit=…,te=…,vae=…",
       .help = "device per part",
       .section = "memory",
       .later = true,
       .harmless = {"auto"}},
      {.name = "no_mmap", .type = T::Flag, .help = "read weights into memory", .section = "memory", .later = true},
      {.name = "strict",
       .type = T::Flag,
       .help = "fail instead of rounding sizes or cutting prompts",
       .section = "generate",
       .project = Field::Always,
       .member = &R::strict},
      {.name = "moderation",
       .type = T::Choice,
       .unit = "HOW",
       .help = "how strict the image classifier of the safety checks is: auto, or low, which flags less (default: auto)",
       .member = &R::moderation,
       .choices = {"auto", "low"}},
  };
}

std::string joined(const std::vector<std::string>& texts) { return fmt::format("{}", fmt::join(texts, ", ")); }

template <class N>
N number_within(const Field& field, const std::string& text, const std::string& origin, const char* kind) {
  N value{};
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  const auto number = static_cast<double>(value);
  if (failure != std::errc() || stop != end || !(number >= field.low && number <= field.high))
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not {} from {} to {}", origin, printable(text), kind, field.low, field.high);
  return value;
}

int64_t seed_of(const std::string& text, const std::string& origin) {
  if (text == "random") return -1;
  const auto value = whole_number(text);
  if (!value || *value < -1)
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not random or a whole number from 0 to 2^63-1", origin, printable(text));
  return *value;
}

bool flag_of(const std::string& text, const std::string& origin) {
  for (const char* yes : {"true", "1", "yes", "on"})
    if (text == yes) return true;
  for (const char* no : {"false", "0", "no", "off", ""})
    if (text == no) return false;
  fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not true or false", origin, printable(text));
}

void check_grammar(const Field& field, const std::string& text, const std::string& origin) {
  if (field.check_text) in_context(origin, [&] { field.check_text(text); });
}

std::string spelled(std::string_view name, char from, char to) {
  std::string text(name);
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

}  // namespace

std::string RequestSpec::origin(std::string_view field) const {
  const auto found = origins.find(field);
  return found == origins.end() ? std::string(field) : found->second;
}

bool RequestSpec::is_asked(std::string_view name) const {
  return get_value(*this, field(name)).has_value() && !defaults.contains(name);
}

const std::vector<Field>& request_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

const Field* find_field(std::string_view name) {
  const std::string wanted = spelled(name, '-', '_');
  for (const Field& f : request_fields())
    if (f.name == wanted) return &f;
  return nullptr;
}

const Field& field(std::string_view name) {
  const Field* found = find_field(name);
  require(found != nullptr, "there is no request field {}", name);
  return *found;
}

std::string option_name(const Field& field) { return spelled(field.name, '_', '-'); }

std::string environment_name(const Field& field) {
  std::string name = "FLUX2_";
  for (const char c : field.name) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// "upsample_url" of the section "upsample" is upsample.url.
std::string config_key(const Field& field) {
  if (field.section.empty()) return {};
  const std::string name = option_name(field), prefix = field.section + "-";
  return field.section + "." + (name.starts_with(prefix) ? name.substr(prefix.size()) : name);
}

FieldValue parse_value(const Field& field, const std::vector<std::string>& texts, const std::string& origin) {
  require(!texts.empty(), "the field {} has no value", field.name);
  const std::string& text = texts.back();
  if (field.later) {
    if (std::find(field.harmless.begin(), field.harmless.end(), text) == field.harmless.end())
      fail(ErrorCode::InvalidArgument, "{}: {} is not available yet in this version", origin, printable(text));
    return text;
  }
  switch (field.type) {
    case FieldType::Texts:
      for (const std::string& each : texts) check_grammar(field, each, origin);
      return texts;
    case FieldType::Integer: return number_within<int64_t>(field, text, origin, "a whole number");
    case FieldType::Number: return number_within<double>(field, text, origin, "a number");
    case FieldType::Flag: return flag_of(text, origin);
    case FieldType::Seed: return seed_of(text, origin);
    case FieldType::Choice:
      if (std::find(field.choices.begin(), field.choices.end(), text) == field.choices.end())
        fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not one of {}", origin, printable(text), joined(field.choices));
      return text;
    case FieldType::Size: in_context(origin, [&] { parse_picture_size(text); }); return text;
    case FieldType::Text: check_grammar(field, text, origin); return text;
  }
  return text;
}

std::vector<std::string> print_value(const FieldValue& value) {
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return *texts;
  if (const auto* text = std::get_if<std::string>(&value)) return {*text};
  if (const auto* flag = std::get_if<bool>(&value)) return {*flag ? "true" : "false"};
  if (const auto* whole = std::get_if<int64_t>(&value)) return {std::to_string(*whole)};
  return {fmt::format("{}", std::get<double>(value))};
}

FieldValue value_from_json(const Field& field, const Json& json, const std::string& origin) {
  const auto wrong = [&](const char* expected) {
    fail(ErrorCode::InvalidArgument, "{}: expected {}, found {}", origin, expected, json.type_name());
  };
  switch (field.type) {
    case FieldType::Texts:
      if (json.is_string()) return parse_value(field, {json.get<std::string>()}, origin);
      if (!json.is_array() || json.empty()) wrong("a list of strings");
      for (const Json& each : json)
        if (!each.is_string()) wrong("a list of strings");
      return parse_value(field, json.get<std::vector<std::string>>(), origin);
    case FieldType::Flag:
      if (!json.is_boolean()) wrong("true or false");
      return json.get<bool>();
    case FieldType::Integer:
    case FieldType::Seed:
      if (json.is_string() && field.type == FieldType::Seed) return seed_of(json.get<std::string>(), origin);
      if (!json.is_number_integer()) wrong("a whole number");
      if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail(ErrorCode::InvalidArgument, "{}: {} is too large", origin, json.get<uint64_t>());
      return parse_value(field, {std::to_string(json.get<int64_t>())}, origin);
    case FieldType::Number:
      if (!json.is_number()) wrong("a number");
      return parse_value(field, {fmt::format("{}", json.get<double>())}, origin);
    case FieldType::Choice:
      // Records write on and off as true and false, and older ones the first and second choice so.
      if (json.is_boolean() && field.choices.size() >= 2) {
        const bool on_off = std::find(field.choices.begin(), field.choices.end(), "on") != field.choices.end();
        const bool yes = json.get<bool>();
        return parse_value(field, {on_off ? (yes ? "on" : "off") : field.choices.at(yes ? 0 : 1)}, origin);
      }
      [[fallthrough]];
    case FieldType::Text:
    case FieldType::Size:
      if (!json.is_string()) wrong("a string");
      return parse_value(field, {json.get<std::string>()}, origin);
  }
  return {};
}

Json value_to_json(const FieldValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

void set_value(RequestSpec& spec, const Field& field, FieldValue value) {
  if (field.type == FieldType::Size) {
    const PictureSize size = parse_picture_size(std::get<std::string>(value));
    spec.width = size.width, spec.height = size.height;
    return;
  }
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
          using V = typename std::decay_t<decltype(spec.*member)>::value_type;
          require(std::holds_alternative<V>(value), "the field {} got a value of another type", field.name);
          spec.*member = std::get<V>(std::move(value));
        }
      },
      field.member);
}

std::optional<FieldValue> get_value(const RequestSpec& spec, const Field& field) {
  return std::visit(
      [&](auto member) -> std::optional<FieldValue> {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) return std::nullopt;
        else return spec.*member ? std::optional<FieldValue>(*(spec.*member)) : std::nullopt;
      },
      field.member);
}

Json spec_to_json(const RequestSpec& spec) {
  Json json = Json::object();
  for (const Field& f : request_fields())
    if (const auto value = get_value(spec, f)) json[f.name] = value_to_json(*value);
  return json;
}

RequestSpec spec_from_json(const Json& json) {
  check(json.is_object(), "a request is a JSON object, not {}", json.type_name());
  RequestSpec spec;
  for (const auto& [key, value] : json.items()) {
    const Field* f = find_field(key);
    if (!f) {
      std::vector<std::string> names;
      for (const Field& known : request_fields())
        if (!known.later && !known.help.empty()) names.push_back(known.name);
      const std::string near = nearest_word(key, names);
      throw Error(ErrorCode::InvalidArgument, fmt::format("unknown request field \"{}\"", printable(key)),
                  near.empty() ? Hint() : Hint("did you mean {0}?", {set_option(near)}));
    }
    if (value.is_null()) continue;
    set_value(spec, *f, value_from_json(*f, value, key));
    spec.origins[f->name] = key;
  }
  return spec;
}

}  // namespace flux2
