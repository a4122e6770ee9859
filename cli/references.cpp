#include "cli/references.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_hash.h"

namespace flux2 {

namespace {

constexpr size_t kMaxReferences = 16;
constexpr int64_t kFewestPixels = 64 * 64, kMostPixels = 4096 * 4096;

// "1048576", or "1024x1024" for the same.
std::optional<int64_t> pixel_limit(const Settings& settings) {
  const Setting* setting = settings.find("ref-pixels");
  if (!setting) return std::nullopt;
  if (setting->values.back().find('x') == std::string::npos) return settings.integer("ref-pixels", kFewestPixels, kMostPixels);
  const PictureSize size = in_context(setting->origin, [&] { return parse_picture_size(setting->values.back()); });
  const int64_t pixels = int64_t{size.width} * size.height;
  check(pixels >= kFewestPixels && pixels <= kMostPixels, "{}: {}x{} is not from {} to {} pixels", setting->origin, size.width,
        size.height, kFewestPixels, kMostPixels);
  return pixels;
}

}  // namespace

ReferenceRules reference_rules(const Settings& settings) {
  return {.prep = reference_prep_named(settings.choice("ref-prep", {"ours", "bfl", "diffusers"}, "ours")),
          .max_pixels = pixel_limit(settings),
          .resize = !settings.flag("no-resize-ref")};
}

GivenPicture PictureShelf::picture(const std::string& path, const ReadOptions& options) {
  if (path.find("://") != std::string::npos)
    throw Error(ErrorCode::InvalidArgument, path + " is an address, not a file", "download the picture first and give its file");
  GivenPicture& given = read_[fmt::format("{} {} {}", options.apply_orientation, options.to_srgb, path)];
  if (!given.image) {
    given.image = std::make_shared<const Image>(read_image(path, options));
    given.record = {std::filesystem::path(path).filename().string(), sha256_of_file(path), given.image->width, given.image->height};
  }
  return given;
}

GivenPicture PictureShelf::prepared(const std::string& path, const ReferenceRules& rules, size_t count) {
  const std::string key =
      fmt::format("{} {} {} {} {}", static_cast<int>(rules.prep), rules.max_pixels.value_or(0), rules.resize, count == 1, path);
  GivenPicture& given = read_[key];
  if (!given.image) {
    given = picture(path, {.apply_orientation = rules.turns_upright(), .to_srgb = rules.converts_colours(), .log = log_});
    given.prepared = in_context(path, [&] { return planes_of(prepare_reference(*given.image, rules, count)); });
  }
  return given;
}

std::vector<GivenPicture> PictureShelf::references(const Settings& settings) {
  const Setting* input = settings.find("input");
  if (!input) return {};
  check(input->values.size() <= kMaxReferences, "{} references are given; at most {} are possible", input->values.size(),
        kMaxReferences);
  const ReferenceRules rules = reference_rules(settings);
  std::vector<GivenPicture> given;
  for (const std::string& path : input->values) given.push_back(prepared(path, rules, input->values.size()));
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
                fmt::format("{} was made from pictures that are not beside it: {}", picture, fmt::join(missing, ", ")),
                "give all of them, in their order, with -i");
  return files;
}

}  // namespace flux2
