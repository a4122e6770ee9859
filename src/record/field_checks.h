#pragma once

#include <string>

// Whether the text of a request field has the syntax of that field. Each throws an Error that says what a valid text looks like.
namespace flux2 {

void check_schedule(const std::string& text);
void check_noise(const std::string& text);
void check_format(const std::string& text);
void check_metadata(const std::string& text);
void check_cache(const std::string& text);
void check_watermark(const std::string& text);
void check_box(const std::string& text);
void check_polygon(const std::string& text);
void check_wand(const std::string& text);
void check_mask_color(const std::string& text);
void check_mask_point(const std::string& text);
void check_region(const std::string& text);
void check_region_file(const std::string& text);
void check_image_prompt_text(const std::string& text);
void check_variation(const std::string& text);
void check_margins(const std::string& text);
void check_url(const std::string& text);
void check_url_or_off(const std::string& text);
void check_json_object(const std::string& text);
void check_crop(const std::string& text);
void check_tile(const std::string& text);
void check_quant_cache(const std::string& text);
void check_match(const std::string& text);
void check_reference_pixels(const std::string& text);

}  // namespace flux2
