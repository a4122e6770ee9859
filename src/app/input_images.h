#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "image/image.h"
#include "image/read_image.h"
#include "image/reference_prep.h"
#include "pipeline/decoded_picture.h"
#include "pipeline/picture_size.h"
#include "record/generation_record.h"

namespace flux2 {

// An image that a request names.
struct GivenPicture {
  std::shared_ptr<const Image> image;      // as read, upright unless the rules of the references say otherwise
  std::shared_ptr<const Planes> prepared;  // as a reference
  PictureRecord record;

  PictureSize size() const { return {image->width, image->height}; }
};

// Reads the images of requests; one that many requests use is read once. "-" is the image on standard input.
class InputImages {
 public:
  // The references of a request in their order, prepared as it asks. resolve() limits how many there may be.
  std::vector<GivenPicture> references(const RequestSpec& spec);

  explicit InputImages(Log log = {}, std::function<std::string()> standard_input = {}, const Limits& limits = {})
      : log_(std::move(log)), standard_input_(std::move(standard_input)), limits_(limits) {}

  // One that is not prepared as a reference.
  GivenPicture picture(const std::string& path) { return picture(path, {.limits = limits_.image, .log = log_}); }
  // The same without converting its colours: a mask holds amounts, not colours.
  GivenPicture mask(const std::string& path);

 private:
  GivenPicture picture(const std::string& path, const ReadOptions& options);
  GivenPicture prepared(const std::string& path, const ReferenceRules& rules, size_t count);

  const std::string& bytes_on_standard_input();

  Log log_;
  std::function<std::string()> standard_input_;
  Limits limits_;
  std::optional<std::string> on_standard_input_;
  std::map<std::string, GivenPicture> read_;
};

ReferenceRules reference_rules(const RequestSpec& spec);
// Notes these rules in `used`, the settings of a record, as far as they are not the default.
void note_reference_rules(const RequestSpec& spec, RequestSpec& used);

// The file of a recorded image, by name and content, in the folder of `picture` or in the current one. Empty if there is none.
std::string find_recorded_file(const PictureRecord& file, const std::string& picture);

// The files that an image was made from, its canvas first. They are searched in the image's folder and in the current folder, by
// name and content. Throws NotFound, naming them, if some are missing.
std::vector<std::string> find_sources(const GenerationRecord& record, const std::string& picture);

// The same for the mask of an inpainted image or of a detail pass, which must have had one.
std::string find_mask(const GenerationRecord& record, const std::string& picture);
// The same for the image that the mask of an inpainted image was made from by comparing (mask_from_diff).
std::string find_mask_difference(const GenerationRecord& record, const std::string& picture);

}  // namespace flux2
