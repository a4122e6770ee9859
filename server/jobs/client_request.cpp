#include "server/jobs/client_request.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "image/mask_shapes.h"
#include "pipeline/regions.h"
#include "record/field_values.h"
#include "record/image_prompt_text.h"
#include "record/request_fields.h"
#include "server/jobs/job_members.h"

namespace flux2 {

Json job_request_of(const RequestSpec& spec, const std::string& kind,
                    const std::function<std::string(const std::string& path)>& image, std::vector<std::string>& left_out) {
  static const std::map<std::string, std::string> renamed = {
      {"batch", "count"}, {"format", "output_format"}, {"quality", "output_quality"}};
  // What the client itself does with the result, and lists that follow below.
  static const std::vector<std::string> local = {"output",      "preview_file", "input",  "mask",        "mask_from_diff",
                                                 "mask_points", "mask_service", "lora",   "detail_mask", "repeat",
                                                 "sidecar",     "output_type",  "region", "region_mask", "region_reference",
                                                 "image_prompt"};
  Json request = {{"kind", kind}};
  for (const Field& field : request_fields()) {
    const auto value = get_value(spec, field);
    if (!value || std::find(local.begin(), local.end(), field.name) != local.end()) continue;
    const auto found = renamed.find(field.name);
    const std::string name = found == renamed.end() ? field.name : found->second;
    if (is_job_member(name)) request[name] = value_to_json(*value);
    else if (spec.is_asked(field.name)) left_out.push_back(field.name);
  }
  if (spec.input)
    for (size_t i = 0; i < spec.input->size(); ++i) {
      if (kind == "inpaint" && i == 0) request["canvas"] = image((*spec.input)[i]);
      else request["references"].push_back(image((*spec.input)[i]));
    }
  if (spec.region) {
    Json regions = Json::array();
    const std::vector<std::string> masks = spec.region_mask.value_or(std::vector<std::string>{});
    size_t used_masks = 0;
    for (const std::string& text : *spec.region) {
      const RegionText region = parse_region(text);
      Json one = {{"prompt", region.prompt}};
      if (region.box) one["box"] = {region.box->x, region.box->y, region.box->width, region.box->height};
      else if (used_masks < masks.size()) one["mask"] = image(masks[used_masks++]);
      regions.push_back(std::move(one));
    }
    for (const std::string& text : spec.region_reference.value_or(std::vector<std::string>{})) {
      const RegionFile file = parse_region_file(text);
      check(file.region <= regions.size(), "{}: there are {} regions, not {}", spec.origin("region_reference"), regions.size(),
            file.region);
      regions[file.region - 1]["references"].push_back(image(file.file));
    }
    request["regions"] = std::move(regions);
  }
  for (const std::string& text : spec.image_prompt.value_or(std::vector<std::string>{})) {
    const ImagePromptText prompt = parse_image_prompt(text);
    Json one = {{"image", image(prompt.file)}, {"strength", prompt.strength}};
    if (prompt.from != 0) one["from"] = prompt.from;
    if (prompt.to != 1) one["to"] = prompt.to;
    request["image_prompts"].push_back(std::move(one));
  }
  if (spec.mask) request["mask"] = image(*spec.mask);
  if (spec.mask_points)
    for (const std::string& text : *spec.mask_points) {
      const MaskPoint point = parse_mask_point(text);
      request["mask_points"].push_back({point.x, point.y, point.include ? 1 : 0});
    }
  if (spec.mask_from_diff) request["mask_from_diff"] = image(*spec.mask_from_diff);
  if (spec.detail_mask) request["detail_mask"] = image(*spec.detail_mask);
  if (spec.lora)
    for (const std::string& adapter : *spec.lora) request["loras"].push_back(adapter);
  return request;
}

}  // namespace flux2
