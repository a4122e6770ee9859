#include "app/input_images.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/sha256.h"

namespace flux2 {

namespace {

// "1048576" or, with the same meaning, "1024x1024".
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

void note_reference_rules(const RequestSpec& spec, RequestSpec& used) {
  used.ref_pixels = spec.ref_pixels;
  if (spec.no_resize_ref.value_or(false)) used.no_resize_ref = true;
  if (spec.ref_prep && *spec.ref_prep != "ours") used.ref_prep = spec.ref_prep;
}

GivenPicture InputImages::picture(const std::string& path, const ReadOptions& options) {
  if (path.find("://") != std::string::npos)
    throw Error(ErrorCode::InvalidArgument, path + " is an address, not a file", "download the image first and name its file");
  GivenPicture& given = read_[fmt::format("{} {} {}", options.apply_orientation, options.to_srgb, path)];
  if (!given.image && path == "-") {
    const auto bytes = std::as_bytes(std::span(bytes_on_standard_input()));
    given.image = std::make_shared<const Image>(in_context("standard input", [&] { return read_image(bytes, options); }));
    given.record = {"standard input", sha256(bytes), given.image->width, given.image->height};
  } else if (!given.image) {
    given.image = std::make_shared<const Image>(read_image(path, options));
    given.record = {std::filesystem::path(path).filename().string(), sha256_of_file(path), given.image->width,
                    given.image->height};
  }
  return given;
}

const std::string& InputImages::bytes_on_standard_input() {
  if (!on_standard_input_) {
    check(standard_input_ != nullptr, "an image cannot be read from standard input here; name a file");
    on_standard_input_ = standard_input_();
    check(!on_standard_input_->empty(), "standard input holds no image");
  }
  return *on_standard_input_;
}

GivenPicture InputImages::mask(const std::string& path) { return picture(path, {.to_srgb = false, .limits = limits_.image}); }

GivenPicture InputImages::prepared(const std::string& path, const ReferenceRules& rules, size_t count) {
  const std::string key =
      fmt::format("{} {} {} {} {}", static_cast<int>(rules.prep), rules.max_pixels.value_or(0), rules.resize, count == 1, path);
  GivenPicture& given = read_[key];
  if (!given.image) {
    given = picture(
        path,
        {.apply_orientation = rules.turns_upright(), .to_srgb = rules.converts_colours(), .limits = limits_.image, .log = log_});
    if (!rules.resize)
      check_limit("reference-pixels", uint64_t(given.image->width) * uint64_t(given.image->height),
                  static_cast<uint64_t>(limits_.request.reference_pixels), path + " is used at its full size of {} pixels",
                  ErrorCode::InvalidArgument);
    given.prepared = in_context(path, [&] { return planes_of(prepare_reference(*given.image, rules, count)); });
  }
  return given;
}

std::vector<GivenPicture> InputImages::references(const RequestSpec& spec) {
  const std::vector<std::string> paths = spec.input.value_or(std::vector<std::string>{});
  const ReferenceRules rules = reference_rules(spec);
  std::vector<GivenPicture> given;
  for (const std::string& path : paths) given.push_back(prepared(path, rules, paths.size()));
  return given;
}

namespace {

// Next to the image or in the current folder; empty if no file has that content.
std::string file_with(const std::string& name, const std::string& sha256, const std::string& picture) {
  namespace fs = std::filesystem;
  if (!is_plain_name(name)) return "";  // anybody may have written the record
  for (const fs::path& folder : {fs::path(picture).parent_path(), fs::path()})
    if (const fs::path file = folder / name; is_file(file) && sha256_of_file(file) == sha256) return file.string();
  return "";
}

}  // namespace

std::string find_recorded_file(const PictureRecord& file, const std::string& picture) {
  return file_with(file.name, file.sha256, picture);
}

std::vector<std::string> find_sources(const GenerationRecord& record, const std::string& picture) {
  std::vector<PictureRecord> sources = record.references;
  if (record.canvas) sources.insert(sources.begin(), *record.canvas);
  std::vector<std::string> files, missing;
  for (const PictureRecord& source : sources) {
    std::string file = file_with(source.name, source.sha256, picture);
    if (file.empty()) missing.push_back(source.name.empty() ? source.sha256.substr(0, 10) : source.name);
    files.push_back(std::move(file));
  }
  if (!missing.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("{} was made from images that are not in its folder: {}", picture, fmt::join(missing, ", ")),
                Hint("give all of them, in their order, with {0}", {set_option("input")}));
  return files;
}

std::string find_mask(const GenerationRecord& record, const std::string& picture) {
  std::string file = file_with(record.mask_name, record.mask_sha256, picture);
  if (!file.empty()) return file;
  const bool inpaints = record.kind == "inpaint";
  const char* made = inpaints ? "inpainted with" : "made with";
  const char* mask = inpaints ? "mask" : "detail mask";
  throw Error(ErrorCode::NotFound,
              record.mask_name.empty()
                  ? fmt::format("{} was {} a {}, but does not say which file it was", picture, made, mask)
                  : fmt::format("{} was {} the {} {}, which is not beside it", picture, made, mask, record.mask_name),
              inpaints ? Hint("pass the mask to {0} with {1}", {run_command("inpaint"), set_option("mask", "FILE")})
                       : Hint("name the mask with {0}", {set_option("detail_mask", "FILE")}));
}

std::string find_mask_difference(const GenerationRecord& record, const std::string& picture) {
  const PictureRecord& other = record.mask_difference.value();
  std::string file = find_recorded_file(other, picture);
  if (file.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("the mask of {} was made by comparing with the image {}, which is not beside it", picture,
                            other.name.empty() ? other.sha256.substr(0, 10) : other.name),
                Hint("pass that image to {0} with {1}", {run_command("inpaint"), set_option("mask_from_diff", "FILE")}));
  return file;
}

}  // namespace flux2
