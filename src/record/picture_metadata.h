#pragma once

#include <optional>
#include <string>
#include <vector>

#include "image/format.h"
#include "image/metadata.h"
#include "record/generation_record.h"

namespace flux2 {

struct MetadataChoice {
  bool a1111 = true, json = true, comfy = false;
  bool is_private = false;  // without prompt and names
  bool provenance = true;   // the XMP mark "trained algorithmic media"

  static MetadataChoice parse(const std::string& list);  // "a1111,json,comfy" or "none"
};

// What goes into an image file of that format. PNG: texts `parameters`, `flux2`, `Software` and, when asked for,
// ComfyUI's `prompt` and `workflow`. Others: the parameters as EXIF comment, our JSON inside the XMP packet.
ImageMetadata picture_metadata(const GenerationRecord& record, const MetadataChoice& choice, ImageFormat format);

// What an image of that format keeps of the metadata of the image that it was made from, which has no record of ours. "none" and
// private remove every text, because any may contain a prompt or a name. A1111's parameters move between the text of a PNG and
// the EXIF comment.
ImageMetadata copied_metadata(ImageMetadata metadata, const MetadataChoice& choice, ImageFormat format);

// How an image was generated, according to its own metadata, written by this or another program.
struct FoundRecord {
  std::string source;  // "flux2", "a1111", "comfyui", "invokeai"
  GenerationRecord record;
  Json original;  // our own JSON as stored; null otherwise
};
std::optional<FoundRecord> find_record(const ImageMetadata& metadata, const JsonLimits& limits = {});

}  // namespace flux2
