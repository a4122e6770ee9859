#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "cli/command.h"
#include "cli/request.h"
#include "record/picture_metadata.h"
#include "image/pixels.h"
#include "image/write_image.h"
#include "pipeline/text_to_image.h"

namespace flux2 {

struct WrittenPicture {
  std::filesystem::path path;  // "-" for standard output
  Image image;
};

// Turns pictures into files as the output options say.
class PictureWriter {
 public:
  explicit PictureWriter(Invocation& run);

  // How many pictures will go to one target; more than one are numbered.
  void expect(const std::string& target, int pictures);
  // Before the long work: throws CannotWrite when the target's folder does not allow writing.
  void check_targets() const;

  WrittenPicture write(const Picture& picture, GenerationRecord record, const std::string& target, const Finish& finish = {});
  // A picture that is 8 bits already. `metadata` stands in for what the record would say.
  WrittenPicture write(Image image, const GenerationRecord& record, const std::string& target,
                       const ImageMetadata* metadata = nullptr);

  Image image_of(const Picture& picture) const;  // in 8 bits, as --rounding says
  // The file that the next picture for this target gets.
  std::filesystem::path next_path(const std::string& target, const GenerationRecord& record) const;

 private:
  struct Target {
    int expected = 0, written = 0;
  };

  ImageFormat format_for(const std::string& target) const;

  Invocation& run_;
  std::map<std::string, Target> targets_;
  MetadataChoice metadata_;
  WriteOptions options_;
  Rounding rounding_;
  std::string latents_out_;
  int latents_written_ = 0;
};

}  // namespace flux2
