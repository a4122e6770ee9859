#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "app/resolve.h"
#include "image/pixels.h"
#include "image/write_image.h"
#include "pipeline/text_to_image.h"
#include "record/picture_metadata.h"

namespace flux2 {

struct WrittenPicture {
  std::filesystem::path path;          // "-" for standard output
  Image image;                         // empty when only latents were written
  std::filesystem::path latents = {};  // the file of the latents where the request asks for one beside the image
  std::string warning = {};            // about this image, for the user; empty: none
};

// An image in the bytes of its file, which is not written yet.
struct EncodedPicture {
  Image image;  // empty when only latents are written
  std::vector<std::byte> bytes;
  GenerationRecord record;
  std::string warning = {};  // about this image, for the user; empty: none
};

// The record of a request becomes that of one image of its batch.
void set_seed(GenerationRecord& record, const Picture& picture);

// What the user should know about an image that ResolvedRequest::finish made: that the watermark it wrote cannot be read back.
// Empty: nothing. Images that are generated with their watermark were checked then.
std::string problem_of_finished(const Image& finished, const GenerationRecord& record);

// Writes images to files as a request asks: the image, its latents (same name, extension .safetensors), or both.
class PictureWriter {
 public:
  // Receives the bytes for the target "-". Without it, that target is an error.
  using ToStandardOutput = std::function<void(std::span<const std::byte>)>;

  explicit PictureWriter(const RequestSpec& spec, ToStandardOutput to_standard_output = {});

  // From now on, samples are rounded to 8 bits as this request asks.
  void round_as(const RequestSpec& spec);
  // How many images will go to one target; more than one are numbered.
  void expect(const std::string& target, int pictures);
  // For a target that names one file: an existing file of that name is kept, and the image gets another name.
  void never_overwrite(const std::string& target) { targets_[target].keeps_existing = true; }
  // To be called before the computation: throws CannotWrite if the target's folder is not writable. Warns of a quality for a
  // format that has none.
  void check_targets(const Log& log) const;

  WrittenPicture write(const Picture& picture, GenerationRecord record, const std::string& target, const Finish& finish = {});
  // The two halves of write(). The first takes most of the time, changes nothing, and may run on any thread; `image` is
  // image_of(picture). The second needs no decoded image in `picture`.
  EncodedPicture encoded(const Picture& picture, Image image, GenerationRecord record, const std::string& target,
                         const Finish& finish = {}) const;
  WrittenPicture write(EncodedPicture encoded, const Picture& picture, const std::string& target);
  // Writes an 8-bit image. `metadata` is that of the image it was made from: the file keeps what the request allows of it, and
  // the record is not written.
  WrittenPicture write(Image image, const GenerationRecord& record, const std::string& target,
                       const ImageMetadata* metadata = nullptr);

  // The bytes that write() would save: the image in the format of the target, with the metadata that the request asks for.
  std::vector<std::byte> encode(const Image& image, const GenerationRecord& record, const std::string& target) const;
  // Saves an image file that was encoded elsewhere, in the format that format_for() names.
  std::filesystem::path write_encoded(std::span<const std::byte> bytes, const GenerationRecord& record,
                                      const std::string& target);
  // From the request, else from the target's extension. Throws InvalidArgument if they contradict each other.
  ImageFormat format_for(const std::string& target) const;

  Image image_of(const Picture& picture) const;  // in 8 bits, rounded as the request says; empty if only latents are written
  // The file that the next image for this target gets.
  std::filesystem::path next_path(const std::string& target, const GenerationRecord& record) const;

 private:
  struct Target {
    int expected = 0, written = 0;
    bool keeps_existing = false;
  };

  std::string latents_target(const std::string& target) const;
  bool keeps_existing(const std::string& target) const;
  // Calls save(path, may_replace) with the next path for this target, again with another path as long as it returns false:
  // another process took the name meanwhile.
  std::filesystem::path save_as_next(const std::string& target, const GenerationRecord& record,
                                     const std::function<bool(const std::filesystem::path&, bool)>& save) const;
  void write_sidecar(const std::filesystem::path& path, const GenerationRecord& record) const;
  void write_latents_out(const Picture& picture);

  RequestSpec spec_;
  ToStandardOutput to_standard_output_;
  std::map<std::string, Target> targets_;
  MetadataChoice metadata_;
  WriteOptions options_;
  Rounding rounding_;
  bool writes_image_ = true, writes_latents_ = false;
  int latents_written_ = 0;
};

}  // namespace flux2
