#include "train/data/cache_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "train/data/source_images.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEncoderNote = "flux2.encoder";
constexpr const char* kStampNote = "flux2.stamp";
constexpr const char* kContentsNote = "flux2.contents";
constexpr const char* kCaptionsNote = "flux2.captions";

std::string size_text(LatentSize size) { return fmt::format("{}×{}", kBucketStep * size.columns, kBucketStep * size.rows); }

std::string hash_of(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }

// What changes latents and shows neither in the files nor in the shapes.
std::string settings_of(const DatasetConfig& config) {
  const PixelSize control = config.control_resolution.value_or(PixelSize{});
  return fmt::format("exif {} no_resize_control {} control_resolution {}x{} alpha_mask {}\n", config.exif,
                     config.no_resize_control, control.width, control.height, config.alpha_mask);
}

std::vector<fs::path> sources_of(const DatasetItem& item) {
  std::vector<fs::path> files = {item.image};
  files.insert(files.end(), item.references.begin(), item.references.end());
  if (!item.mask.empty()) files.push_back(item.mask);
  return files;
}

std::string note_of(const std::map<std::string, std::string>& metadata, const char* name) {
  const auto at = metadata.find(name);
  return at == metadata.end() ? "" : at->second;
}

// The autoencoder of the note, without the type of the latents behind it.
std::string_view without_type(std::string_view encoder) { return encoder.substr(0, encoder.rfind(' ')); }

bool is_older(const fs::path& file, const std::vector<fs::path>& than) {
  std::error_code fault;
  const auto time = fs::last_write_time(file, fault);
  return fault || std::any_of(than.begin(), than.end(), [&](const fs::path& other) {
           std::error_code gone;
           return fs::last_write_time(other, gone) > time || gone;
         });
}

}  // namespace

std::string stale_reason(const DatasetConfig& config, const LatentSummary& found) {
  const Buckets buckets(config.resolution, {config.enable_bucket, config.bucket_no_upscale});
  const LatentSize expected = latent_size(buckets.of(found.original));
  if (found.target != expected) return fmt::format("was made at {}, but is {} now", size_text(found.target), size_text(expected));
  if (!config.no_resize_control && !config.control_resolution)
    for (const LatentSize& reference : found.references)
      if (reference != expected)
        return fmt::format("has a reference at {}, but references have the size of the image, {}, now", size_text(reference),
                           size_text(expected));
  if (config.flip_aug && !found.has_flip) return "has no mirrored latents, which flip_aug needs";
  if (config.has_masks() && !found.has_mask) return "has no mask";
  return "";
}

SourceMarks source_marks(const DatasetConfig& config, const DatasetItem& item, const std::string& encoder, bool with_contents) {
  SourceMarks marks{encoder, "", ""};
  std::string stamp = settings_of(config), contents = stamp;
  for (const fs::path& path : sources_of(item)) {
    const std::string role = path == item.mask ? "mask" : "image";
    std::error_code fault;
    const auto size = fs::file_size(path, fault);
    const auto time = fs::last_write_time(path, fault).time_since_epoch();
    if (fault) fail(ErrorCode::NotFound, "cannot read {}: {}", path.string(), fault.message());
    stamp += fmt::format("{} {} {} {}\n", role, path.filename().string(), size,
                         std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    if (with_contents) contents += fmt::format("{} {}\n", role, sha256_of_file(path));
  }
  marks.stamp = hash_of(stamp);
  if (with_contents) marks.contents = hash_of(contents);
  return marks;
}

std::map<std::string, std::string> as_notes(const SourceMarks& marks) {
  return {{kEncoderNote, marks.encoder}, {kStampNote, marks.stamp}, {kContentsNote, marks.contents}};
}

std::map<std::string, std::string> caption_notes(const std::vector<std::string>& captions, const std::string& encoder) {
  std::map<std::string, std::string> notes;
  if (!encoder.empty()) notes[kEncoderNote] = encoder;
  if (captions.size() > 1) notes[kCaptionsNote] = captions_hash(captions);
  return notes;
}

bool is_current(const fs::path& latent_file, const DatasetConfig& config, const DatasetItem& item, const CacheModel& model,
                const std::string& encoder, CacheCheck how) {
  try {
    const LatentSummary found = read_latent_summary(latent_file, model);
    if (!stale_reason(config, found).empty() || found.references.size() != item.references.size()) return false;
    if (how == CacheCheck::Fits) return true;
    const std::string contents = note_of(found.metadata, kContentsNote);
    if (contents.empty()) return !is_older(latent_file, sources_of(item));
    const std::string maker = note_of(found.metadata, kEncoderNote);
    if (how == CacheCheck::AnyForm ? without_type(maker) != without_type(encoder) : maker != encoder) return false;
    return note_of(found.metadata, kStampNote) == source_marks(config, item, encoder, false).stamp ||
           contents == source_marks(config, item, encoder, true).contents;
  } catch (const Error&) {
    return false;  // damaged, or an image is gone: making it again says so
  }
}

bool is_current(const fs::path& text_file, const std::vector<std::string>& captions, const CacheModel& model,
                const std::string& encoder, CacheCheck how) {
  if (!is_file(text_file)) return false;
  try {
    const CaptionSummary found = read_caption_summary(text_file, model);
    const int64_t variants = captions.size() == 1 ? 0 : static_cast<int64_t>(captions.size());
    if (found.variants != variants) return false;
    if (how == CacheCheck::Fits) return true;
    const std::string maker = note_of(found.metadata, kEncoderNote), texts = note_of(found.metadata, kCaptionsNote);
    if (!maker.empty() && maker != encoder) return false;
    return found.caption == captions.front() && (variants == 0 || texts == captions_hash(captions));
  } catch (const Error&) {
    return false;
  }
}

}  // namespace flux2
