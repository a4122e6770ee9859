#include "server/jobs/job_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "app/request_limits.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/text.h"
#include "record/field_values.h"
#include "record/request_fields.h"
#include "server/http/errors.h"
#include "server/jobs/foreign_members.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/job_members.h"
#include "server/jobs/request_images.h"
#include "server/jobs/request_lists.h"
#include "server/jobs/studio_request.h"

namespace flux2 {

namespace {

// Members that say which part of an image to regenerate.
constexpr std::array kMasks = {"mask",       "mask_box",       "mask_ellipse", "mask_polygon", "mask_wand",
                               "mask_color", "mask_from_diff", "extend",       "mask_text",    "mask_points"};
constexpr const char* kOnlyInpaint = "belongs to jobs of kind inpaint";
// Members that are images, and what each image is.
constexpr std::array<std::pair<const char*, const char*>, 4> kImages = {
    {{"canvas", "reference"}, {"mask", "mask"}, {"mask_from_diff", "reference"}, {"detail_mask", "mask"}}};

void require_images(const Json& request, const std::string& kind, bool elements_have_images,
                    std::vector<HttpError::FieldProblem>& problems) {
  const size_t references = request.contains("references") ? request["references"].size() : 0;
  if (kind == "edit" && references == 0 && !elements_have_images)
    problems.push_back({"references", "an edit needs at least one reference image"});
  if (kind == "inpaint") {
    if (!request.contains("canvas")) problems.push_back({"canvas", "inpainting needs the image to change"});
    const auto gives_mask = [&](const char* member) { return request.contains(member); };
    if (std::none_of(kMasks.begin(), kMasks.end(), gives_mask))
      problems.push_back({"mask",
                          "inpainting needs a mask, a selection such as mask_box or mask_wand, mask_text, mask_points or "
                          "extend"});
  } else {
    if (request.contains("canvas")) problems.push_back({"canvas", kOnlyInpaint});
    for (const char* member : kMasks)
      if (request.contains(member)) problems.push_back({member, kOnlyInpaint});
  }
}

// "count: 100000 images; the limit is 16" is about the member `count`.
HttpError::FieldProblem problem_of(const Error& error, const Json& request) {
  const std::string message = error.what(), name = message.substr(0, message.find(": "));
  if (name.size() == message.size() || !request.contains(name)) return {"", message};
  return {name, message.substr(name.size() + 2)};
}

uint64_t random_seed() {
  std::random_device device;
  return std::uniform_int_distribution<uint64_t>(0, 0xffffffffu)(device);
}

}  // namespace

Json check_job_request(const Json& request, const std::string& kind, AssetStore& assets, const AppContext& context,
                       std::vector<std::string>& warnings) {
  if (!request.is_object()) throw HttpError(400, "invalid_request", "the request must be a JSON object");
  std::vector<HttpError::FieldProblem> problems;
  Json checked = in_our_words(request, warnings);
  if (!checked.contains("kind")) checked["kind"] = kind;
  const StudioResolution resolution = resolve_in_studio(checked, assets, problems);
  RequestSpec spec;
  for (const auto& [key, value] : checked.items()) {
    if (key == kResolution && !request.contains(kResolution)) continue;
    try {
      if (const auto texts = field_texts(key, value)) {
        const Field& f = field(texts->field);
        set_value(spec, f, parse_value(f, texts->texts, key));
        if (f.type == FieldType::Size) spec.origins["width"] = spec.origins["height"] = key;
        else spec.origins[f.name] = key;
      }
      if (key == "regions") spec.region = region_texts(value), spec.origins["region"] = key;
    } catch (const Error& e) {
      std::string message = e.what();
      if (message.starts_with(key + ": ")) message.erase(0, key.size() + 2);
      problems.push_back({printable(key), message});
    }
  }
  if (!is_image_kind(kind)) problems.push_back({"kind", "\"" + printable(kind) + "\" is not generate, edit or inpaint"});
  if (!checked.contains("prompt")) problems.push_back({"prompt", "is missing"});
  require_images(checked, kind, resolution.found.has_images(), problems);
  if (problems.empty()) try {
      check_request_limits(spec, context.limits);
      if (checked.contains("references"))
        check_limit("references", checked["references"].size(), static_cast<uint64_t>(context.limits.request.references),
                    "references: {} reference images", ErrorCode::InvalidArgument);
      if (checked.contains("image_prompts"))
        check_limit("references", checked["image_prompts"].size(), static_cast<uint64_t>(context.limits.request.references),
                    "image_prompts: {} image prompts", ErrorCode::InvalidArgument);
      if (checked.contains("regions")) {
        uint64_t images = 0;
        for_region_images(checked["regions"], [&](Json&, const char*, const std::string&) { ++images; });
        check_limit("references", images, 2 * static_cast<uint64_t>(context.limits.request.references), "regions: {} images",
                    ErrorCode::InvalidArgument);
      }
    } catch (const Error& e) {
      problems.push_back(problem_of(e, checked));
    }
  if (!problems.empty()) {
    std::vector<std::string> lines;
    lines.reserve(problems.size());
    for (const auto& problem : problems)
      lines.push_back(problem.path.empty() ? problem.message : problem.path + ": " + problem.message);
    HttpError error(400, "invalid_request", fmt::format("{}", fmt::join(lines, "; ")), problems.front().path);
    error.fields = std::move(problems);
    throw error;
  }
  // Only now, when nothing else is wrong, is anything stored.
  if (checked.contains("references"))
    for (size_t i = 0; i < checked["references"].size(); ++i) {
      Json& image = checked["references"][i];
      image = stored_image(image.get<std::string>(), "reference", assets, context, fmt::format("references[{}]", i));
    }
  if (checked.contains("regions"))
    for_region_images(checked["regions"], [&](Json& image, const char* what, const std::string& where) {
      image = stored_image(image.get<std::string>(), what, assets, context, where);
    });
  if (checked.contains("image_prompts"))
    for (size_t i = 0; i < checked["image_prompts"].size(); ++i) {
      Json& image = checked["image_prompts"][i]["image"];
      image = stored_image(image.get<std::string>(), "reference", assets, context, fmt::format("image_prompts[{}].image", i));
    }
  for (const auto& [member, what] : kImages)
    if (checked.contains(member))
      checked[member] = stored_image(checked[member].get<std::string>(), what, assets, context, member);
  finish_in_studio(checked, resolution, assets, context.limits.request, warnings);
  if (spec.seed.value_or(-1) < 0) checked["seed"] = random_seed();
  return checked;
}

}  // namespace flux2
