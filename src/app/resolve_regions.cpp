#include "app/resolve_regions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/regions.h"

namespace flux2 {

namespace {

const std::vector<std::string>& list_of(const RequestSpec::Texts& texts) {
  static const std::vector<std::string> none;
  return texts ? *texts : none;
}

// Combinations that no model can make; check_regions() refuses them as well, without knowing how the user can change them.
void refuse_combinations(const RequestSpec& spec, const Request& request) {
  const auto refuse = [&](const char* why, Hint hint) {
    throw Error(ErrorCode::InvalidArgument, spec.origin("region") + ": " + why, std::move(hint));
  };
  if (request.tile_x || request.tile_y)
    refuse("a seamless image cannot have regions", Hint("leave out the regions, or use {0}", {set_option("tile", "off")}));
  if (request.given_text.defined())
    refuse("the text states come from a file, so prompts of regions cannot be used",
           Hint("leave out {0}", {unset_option("embeddings")}));
  if (request.reuse_reference_keys && has_region_references(spec))
    refuse("this model processes references once and reuses them in every step, so a region cannot have references of its own",
           Hint("give them to the whole image with {0}, or use {1}", {set_option("input"), set_option("ref_kv", "off")}));
}

Image mask_of_file(const GivenPicture& given, PictureSize size, const Log& log) {
  constexpr double kLargestStretch = 1.03;
  Image mask = mask_of_picture(*given.image);
  if (mask.width == size.width && mask.height == size.height) return mask;
  const double stretch = static_cast<double>(mask.width) * size.height / (static_cast<double>(mask.height) * size.width);
  check(stretch <= kLargestStretch && stretch >= 1 / kLargestStretch,
        "the mask {} is {}x{}, the image {}x{}: they need the same aspect ratio", given.record.name, mask.width, mask.height,
        size.width, size.height);
  log.info("the mask {} is {}x{} and is scaled to the size of the image, {}x{}", given.record.name, mask.width, mask.height,
           size.width, size.height);
  return scaled_mask(mask, size.width, size.height);
}

void read_references(const RequestSpec& spec, InputImages& images, ResolvedRequest& resolved) {
  RequestSpec all = spec;  // all references of a request are prepared alike
  all.input = list_of(spec.input);
  std::vector<RegionFile> files;
  for (const std::string& text : list_of(spec.region_reference)) {
    files.push_back(parse_region_file(text));
    check(files.back().region <= resolved.request.regions.size(), "{}: region {} does not exist; the number of regions is {}",
          spec.origin("region_reference"), files.back().region, resolved.request.regions.size());
    all.input->push_back(files.back().file);
  }
  if (files.empty()) return;
  const std::vector<GivenPicture> given = images.references(all);
  note_reference_rules(spec, resolved.record.request);
  resolved.record.request.ref_kv = "off";  // with "on", refuse_combinations() has thrown
  const size_t first = given.size() - files.size();
  for (size_t i = 0; i < files.size(); ++i) {
    const GivenPicture& reference = given[first + i];
    resolved.request.regions[files[i].region - 1].references.push_back(reference.prepared);
    resolved.record.region_references.push_back({static_cast<int>(files[i].region), reference.record});
  }
}

}  // namespace

bool has_region_references(const RequestSpec& spec) { return spec.region && !list_of(spec.region_reference).empty(); }

void remove_regions(RequestSpec& spec) { spec.region.reset(), spec.region_mask.reset(), spec.region_reference.reset(); }

void resolve_regions(const RequestSpec& spec, PictureSize size, InputImages& images, const Log& log, ResolvedRequest& resolved,
                     const std::function<Image(const Image& mask)>& part) {
  const auto& masks = list_of(spec.region_mask);
  if (!spec.region) {
    for (const char* name : {"region_mask", "region_reference"})
      if (spec.is_asked(name))
        throw Error(ErrorCode::InvalidArgument, spec.origin(name) + ": there is no region it could belong to",
                    Hint("add one with {0}", {set_option("region", "PROMPT")}));
    return;
  }
  Request& request = resolved.request;
  refuse_combinations(spec, request);
  size_t used_masks = 0;
  for (const std::string& text : *spec.region) {
    const size_t number = request.regions.size() + 1;
    const RegionText region = parse_region(text);
    check(is_utf8(region.prompt), "{}: the prompt of region {} is not valid UTF-8", spec.origin("region"), number);
    check(region.prompt.find("<lora:") == std::string::npos,
          "{}: region {} names an adapter, but adapters change the whole image; name it in the prompt itself",
          spec.origin("region"), number);
    Image mask(size.width, size.height, 1);
    if (region.box) {
      in_context(spec.origin("region"), [&] { add_box(mask, *region.box); });
    } else {
      if (used_masks == masks.size())
        throw Error(ErrorCode::InvalidArgument, fmt::format("{}: region {} has no area", spec.origin("region"), number),
                    Hint("write the rectangle behind the prompt, {0}, or add {1}",
                         {set_option("region", "PROMPT@x,y,w,h"), set_option("region_mask", "FILE")}));
      const GivenPicture given = images.mask(masks[used_masks++]);
      mask = mask_of_file(given, size, log);
      resolved.record.region_masks.push_back(given.record);
    }
    request.regions.push_back({.prompt = region.prompt, .mask = std::make_shared<const Image>(part ? part(mask) : mask)});
  }
  check(used_masks == masks.size(), "{}: {} masks are given, but {} regions have no rectangle", spec.origin("region_mask"),
        masks.size(), used_masks);
  read_references(spec, images, resolved);
  resolved.record.request.region = spec.region;
  in_context(spec.origin("region"), [&] { check_regions(request); });
  if (!request.prompt.empty() && !uses_own_prompt(request))
    log.warn("the regions cover the whole image, so only their own prompts are used");
}

void take_region_files(const GenerationRecord& record, const std::string& picture, RequestSpec& spec) {
  const auto found = [&](const PictureRecord& file, const char* field) {
    std::string path = find_recorded_file(file, picture);
    if (path.empty())
      throw Error(ErrorCode::NotFound,
                  fmt::format("{} was made with the image {}, which is not in its folder", picture,
                              file.name.empty() ? file.sha256.substr(0, 10) : file.name),
                  Hint("give the regions and all their files again with {0} and {1}", {set_option("region"), set_option(field)}));
    return path;
  };
  if (!record.request.region) return;  // private records do not say which regions there were
  for (const PictureRecord& mask : record.region_masks) {
    if (!spec.region_mask) spec.region_mask.emplace();
    spec.region_mask->push_back(found(mask, "region_mask"));
  }
  for (const RegionReferenceRecord& reference : record.region_references) {
    if (!spec.region_reference) spec.region_reference.emplace();
    spec.region_reference->push_back(fmt::format("{}:{}", reference.region, found(reference.picture, "region_reference")));
  }
}

}  // namespace flux2
