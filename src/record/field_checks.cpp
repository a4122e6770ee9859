#include "record/field_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/number_from_text.h"
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

// "off", "auto" or a number from low to high.
void check_number_or(const std::string& text, std::initializer_list<std::string_view> words, int64_t low, int64_t high) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return;
  const auto number = number_from_text<int64_t>(text);
  check(number && *number >= low && *number <= high, "\"{}\" is not {} or a whole number from {} to {}", text,
        fmt::join(words, ", "), low, high);
}

}  // namespace

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
void check_url_or_off(const std::string& text) {
  if (text != "off") parse_url(text);
}
void check_json_object(const std::string& text) {
  const auto json = try_parse_json(text);
  check(json && json->is_object(), "\"{}\" is not a JSON object", printable(text));
}

void check_crop(const std::string& text) { check_number_or(text, {"auto", "off"}, 0, 4096); }
void check_tile(const std::string& text) { check_number_or(text, {"auto", "off"}, 128, 4096); }
void check_quant_cache(const std::string& text) { check_number_or(text, {"auto", "off"}, 1, 1 << 20); }
void check_match(const std::string& text) { check_number_or(text, {"off"}, 1, 16); }
void check_reference_pixels(const std::string& text) {
  constexpr int64_t kFewest = 64 * 64, kMost = 4096 * 4096;
  int64_t pixels = number_from_text<int64_t>(text).value_or(0);
  if (text.find('x') != text.npos) {
    const PictureSize size = parse_picture_size(text);
    pixels = int64_t{size.width} * size.height;
  }
  check(pixels >= kFewest && pixels <= kMost, "\"{}\" is not an area from {} to {} pixels", text, kFewest, kMost);
}

}  // namespace flux2
