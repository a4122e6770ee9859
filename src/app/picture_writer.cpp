#include "app/picture_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "app/latent_files.h"
#include "app/output_name.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "image/watermark.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

std::string local_time(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

void save_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void check_folder(const fs::path& file) {
  fs::path folder = fs::absolute(file).parent_path();
  std::error_code ignored;
  while (folder.has_relative_path() && !fs::exists(folder, ignored)) folder = folder.parent_path();
  if (!fs::is_directory(folder, ignored))
    fail(ErrorCode::CannotWrite, "cannot write {}: {} is not a folder", file.string(), folder.string());
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    fail(ErrorCode::CannotWrite, "cannot write {}: no permission for folder {}", file.string(), folder.string());
}

bool save_bytes(const fs::path& path, std::span<const std::byte> bytes, bool may_replace) {
  AtomicFile file(path);
  file.write(bytes);
  if (!may_replace) return file.commit_new();
  file.commit();
  return true;
}

// A killed run may have left files in a folder with another date or number than ours.
void remove_leftovers(const fs::path& folder) {
  remove_stale_temporaries(folder);
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (entry->is_directory(failure) && !entry->is_symlink(failure)) remove_stale_temporaries(entry->path());
}

// The folders before the first token of a pattern.
std::string without_tokens(const std::string& target) {
  const size_t token = target.find_first_of("{%");
  if (token == target.npos) return target;
  const size_t slash = target.rfind('/', token);
  return slash == target.npos ? "x" : target.substr(0, slash + 1) + "x";
}

// The image format of a file extension. Empty if the extension belongs to no image format.
std::optional<ImageFormat> known_format(const std::string& extension) {
  try {
    return format_from_name(extension);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

PictureWriter::PictureWriter(const RequestSpec& spec, ToStandardOutput to_standard_output)
    : spec_(spec), to_standard_output_(std::move(to_standard_output)) {
  metadata_ = chosen_metadata(spec);
  options_.quality = static_cast<int>(spec.quality.value_or(95));
  round_as(spec);
  writes_image_ = spec.output_type != "latent";
  writes_latents_ = spec.output_type.value_or("images") != "images";
}

void PictureWriter::round_as(const RequestSpec& spec) {
  rounding_ = spec.rounding == "trunc" ? Rounding::Trunc : Rounding::Nearest;
}

// "fox.png" → "fox.safetensors"; folders and patterns with {ext} stay unchanged.
std::string PictureWriter::latents_target(const std::string& target) const {
  const fs::path path(target);
  std::error_code ignored;
  const bool named = !target.empty() && !target.ends_with('/') && !fs::is_directory(path, ignored);
  if (!named || path.extension().string().find('{') != std::string::npos) return target;
  return fs::path(path).replace_extension(".safetensors").string();
}

ImageFormat PictureWriter::format_for(const std::string& target) const {
  if (!writes_image_) return ImageFormat::Png;  // nobody asks
  std::string extension = target.ends_with('/') || target == "-" ? "" : fs::path(target).extension().string();
  std::error_code ignored;
  if (extension.find('{') != extension.npos || fs::is_directory(target, ignored)) extension.clear();
  if (!spec_.format) return extension.empty() ? ImageFormat::Png : format_from_name(extension);
  const ImageFormat asked = format_from_name(*spec_.format), named = known_format(extension).value_or(asked);
  if (named == asked) return asked;
  if (!spec_.is_asked("format")) return named;  // a configured format is for images whose name does not tell
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("{} {} contradicts the file name {}", spec_.origin("format"), *spec_.format, target),
              Hint(fmt::format("end the name with .{}, or leave out {{0}}", name_of(asked)), {unset_option("format")}));
}

void PictureWriter::expect(const std::string& target, int pictures) { targets_[target].expected += pictures; }

void PictureWriter::check_targets(const Log& log) const {
  bool ignores_quality = false;
  for (const auto& [target, counts] : targets_) {
    const ImageFormat format = format_for(target);
    ignores_quality = ignores_quality || (format != ImageFormat::Jpeg && format != ImageFormat::WebP);
    if (target != "-") {
      const fs::path beginning = without_tokens(target.empty() ? std::string(kDefaultOutput) : target);
      check_folder(beginning);
      if (chooses_name(target)) remove_leftovers(beginning.parent_path());
      choose_output(target, {}, counts.expected > 1);  // names unknown tokens
      continue;
    }
    check(!writes_latents_, "latents cannot be written to standard output; name a file");
    check(counts.expected == 1, "standard output takes one image, but {} were requested", counts.expected);
    check(to_standard_output_ != nullptr, "images cannot be written to standard output here; name a file");
  }
  for (const auto* file : {&spec_.latents_out, &spec_.trace, &spec_.preview_file})
    if (*file) check_folder(**file);
  if (ignores_quality && writes_image_ && spec_.is_asked("quality"))
    log.warn("{} has no effect: only jpg and webp have a quality", spec_.origin("quality"));
}

Image PictureWriter::image_of(const Picture& picture) const { return writes_image_ ? picture.decoded.rgb8(rounding_) : Image(); }

fs::path PictureWriter::next_path(const std::string& target, const GenerationRecord& record) const {
  const auto known = targets_.find(target);
  const Target counts = known == targets_.end() ? Target{1, 0} : known->second;
  const OutputFields fields{.seed = record.seed(),
                            .index = counts.written,
                            .date = local_time("%Y-%m-%d"),
                            .time = local_time("%H%M%S"),
                            .model = record.model,
                            .prompt = record.prompt(),
                            .job = "0",
                            .width = record.width(),
                            .height = record.height(),
                            .steps = static_cast<int>(record.request.steps.value_or(0)),
                            .extension = writes_image_ ? name_of(format_for(target)) : "safetensors"};
  fs::path path = choose_output(writes_image_ ? target : latents_target(target), fields, counts.expected > 1);
  return counts.keeps_existing ? free_name(path) : path;
}

bool PictureWriter::keeps_existing(const std::string& target) const {
  const auto known = targets_.find(target);
  return chooses_name(target) || (known != targets_.end() && known->second.keeps_existing);
}

fs::path PictureWriter::save_as_next(const std::string& target, const GenerationRecord& record,
                                     const std::function<bool(const fs::path&, bool)>& save) const {
  constexpr int kAttempts = 10'000;  // an attempt fails if another process takes the name first
  const bool may_replace = !keeps_existing(target);
  for (int i = 0; i < kAttempts; ++i)
    if (fs::path path = next_path(target, record); save(path, may_replace)) return path;
  fail(ErrorCode::CannotWrite, "cannot write {}: other processes take every name", target);
}

std::vector<std::byte> PictureWriter::encode(const Image& image, const GenerationRecord& record,
                                             const std::string& target) const {
  const ImageFormat format = format_for(target);
  return encode_image(image, format, picture_metadata(record, metadata_, format), options_);
}

WrittenPicture PictureWriter::write(Image image, const GenerationRecord& record, const std::string& target,
                                    const ImageMetadata* metadata) {
  WrittenPicture written{"-", std::move(image)};
  const ImageFormat format = format_for(target);
  const auto bytes = metadata ? encode_image(written.image, format, copied_metadata(*metadata, metadata_, format), options_)
                              : encode(written.image, record, target);
  written.path = write_encoded(bytes, record, target);
  write_sidecar(written.path, record);
  return written;
}

void PictureWriter::write_sidecar(const fs::path& path, const GenerationRecord& record) const {
  if (path == "-" || !spec_.sidecar.value_or(false)) return;
  save_text(path.string() + ".json",
            to_json(record, metadata_.is_private).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

fs::path PictureWriter::write_encoded(std::span<const std::byte> bytes, const GenerationRecord& record,
                                      const std::string& target) {
  fs::path path = "-";
  if (target == "-") to_standard_output_(bytes);
  else
    path = save_as_next(target, record,
                        [&](const fs::path& next, bool may_replace) { return save_bytes(next, bytes, may_replace); });
  ++targets_[target].written;
  return path;
}

void set_seed(GenerationRecord& record, const Picture& picture) {
  record.request.seed = static_cast<int64_t>(picture.seed);
  if (picture.variation) record.request.variation = picture.variation->text();
}

std::string problem_of_finished(const Image& finished, const GenerationRecord& record) {
  return record.request.watermark ? watermark_problem(finished, watermark_bits(*record.request.watermark)) : std::string();
}

EncodedPicture PictureWriter::encoded(const Picture& picture, Image image, GenerationRecord record, const std::string& target,
                                      const Finish& finish) const {
  set_seed(record, picture);
  record.index = picture.index;
  EncodedPicture result{.image = finish && writes_image_ ? finish(image) : std::move(image), .bytes = {}, .record = {}};
  if (writes_image_) result.bytes = encode(result.image, record, target);
  if (finish && writes_image_) result.warning = problem_of_finished(result.image, record);
  result.record = std::move(record);
  return result;
}

WrittenPicture PictureWriter::write(EncodedPicture encoded, const Picture& picture, const std::string& target) {
  const GenerationRecord& record = encoded.record;
  WrittenPicture written;
  if (writes_image_) {
    written.path = write_encoded(encoded.bytes, record, target);
    written.image = std::move(encoded.image);
    written.warning = std::move(encoded.warning);
    write_sidecar(written.path, record);
    if (writes_latents_) {
      const bool may_replace = !keeps_existing(target);
      const fs::path beside = fs::path(written.path).replace_extension(".safetensors");
      do written.latents = may_replace ? beside : free_name(beside);
      while (!save_latents(written.latents, picture, record, metadata_, may_replace));
    }
  } else {
    written.path = written.latents = save_as_next(target, record, [&](const fs::path& path, bool may_replace) {
      return save_latents(path, picture, record, metadata_, may_replace);
    });
    ++targets_[target].written;
  }
  if (spec_.latents_out) write_latents_out(picture);
  return written;
}

WrittenPicture PictureWriter::write(const Picture& picture, GenerationRecord record, const std::string& target,
                                    const Finish& finish) {
  return write(encoded(picture, image_of(picture), std::move(record), target, finish), picture, target);
}

void PictureWriter::write_latents_out(const Picture& picture) {
  int total = 0;
  for (const auto& [name, other] : targets_) total += other.expected;
  const fs::path path = total > 1 ? numbered(*spec_.latents_out, latents_written_ + 1) : fs::path(*spec_.latents_out);
  const Shape shape{static_cast<int64_t>(picture.latents.size()) / (picture.rows * picture.columns), picture.rows,
                    picture.columns};
  save_tensors(path, {{"latents", Tensor::host_copy(picture.latents.data(), DType::F32, shape)}});
  ++latents_written_;
}

}  // namespace flux2
