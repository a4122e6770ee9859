#include "app/input_images.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file_hash.h"

namespace flux2 {

namespace {

constexpr size_t kMaxReferences = 16;

// "1048576", or "1024x1024" for the same.
std::optional<int64_t> pixel_limit(const RequestSpec& spec) {
  if (!spec.ref_pixels) return std::nullopt;
  if (spec.ref_pixels->find('x') == std::string::npos) return std::stoll(*spec.ref_pixels);
  const PictureSize size = parse_picture_size(*spec.ref_pixels);
  return int64_t{size.width} * size.height;
}

}  // namespace

ReferenceRules reference_rules(const RequestSpec& spec) {
  return {.prep = reference_prep_named(spec.ref_prep.value_or("ours")),
          .max_pixels = pixel_limit(spec),
          .resize = !spec.no_resize_ref.value_or(false)};
}

GivenPicture InputImages::picture(const std::string& path, const ReadOptions& options) {
  if (path.find("://") != std::string::npos)
    throw Error(ErrorCode::InvalidArgument, path + " is an address, not a file", "download the image first and name its file");
  GivenPicture& given = read_[fmt::format("{} {} {}", options.apply_orientation, options.to_srgb, path)];
  if (!given.image) {
    given.image = std::make_shared<const Image>(read_image(path, options));
    given.record = {std::filesystem::path(path).filename().string(), sha256_of_file(path), given.image->width,
                    given.image->height};
  }
  return given;
}

GivenPicture InputImages::prepared(const std::string& path, const ReferenceRules& rules, size_t count) {
  const std::string key =
      fmt::format("{} {} {} {} {}", static_cast<int>(rules.prep), rules.max_pixels.value_or(0), rules.resize, count == 1, path);
  GivenPicture& given = read_[key];
  if (!given.image) {
    given = picture(path, {.apply_orientation = rules.turns_upright(), .to_srgb = rules.converts_colours(), .log = log_});
    given.prepared = in_context(path, [&] { return planes_of(prepare_reference(*given.image, rules, count)); });
  }
  return given;
}

std::vector<GivenPicture> InputImages::references(const RequestSpec& spec) {
  const std::vector<std::string> paths = spec.input.value_or(std::vector<std::string>{});
  check(paths.size() <= kMaxReferences, "{} references are given; at most {} are allowed", paths.size(), kMaxReferences);
  const ReferenceRules rules = reference_rules(spec);
  std::vector<GivenPicture> given;
  for (const std::string& path : paths) given.push_back(prepared(path, rules, paths.size()));
  return given;
}

std::vector<std::string> find_sources(const GenerationRecord& record, const std::string& picture) {
  namespace fs = std::filesystem;
  std::vector<PictureRecord> sources = record.references;
  if (record.canvas) sources.insert(sources.begin(), *record.canvas);
  std::vector<std::string> files, missing;
  for (const PictureRecord& source : sources) {
    std::string file;
    for (const fs::path& folder : {fs::path(picture).parent_path(), fs::path()}) {
      const fs::path candidate = folder / source.name;
      std::error_code ignored;
      if (file.empty() && fs::is_regular_file(candidate, ignored) && sha256_of_file(candidate) == source.sha256)
        file = candidate.string();
    }
    if (file.empty()) missing.push_back(source.name.empty() ? source.sha256.substr(0, 10) : source.name);
    files.push_back(std::move(file));
  }
  if (!missing.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("{} was made from images that are not in its folder: {}", picture, fmt::join(missing, ", ")),
                Hint("give all of them, in their order, with {0}", {set_option("input")}));
  return files;
}

}  // namespace flux2
