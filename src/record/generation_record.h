#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "record/request_spec.h"

namespace flux2 {

inline constexpr const char* kProgramName = "flux2.cpp";
std::string program_version();  // "flux2.cpp 0.1.0"

// An image that another one was made from.
struct PictureRecord {
  std::string name;    // base name of its file
  std::string sha256;  // of its file
  int width = 0, height = 0;

  bool operator==(const PictureRecord&) const = default;
};

// An adapter that changed the model.
struct AdapterRecord {
  std::string name;    // base name of its file, without extension
  std::string sha256;  // of its file; empty when unknown
  double weight = 1;
  std::string layers = {};  // a pattern, when only some of its layers were used

  bool operator==(const AdapterRecord&) const = default;
};

// A reference image of one region.
struct RegionReferenceRecord {
  int region = 1;  // counted from 1
  PictureRecord picture;

  bool operator==(const RegionReferenceRecord&) const = default;
};

// An image that was used as a prompt.
struct ImagePromptRecord {
  PictureRecord picture;
  double strength = 1, from = 0, to = 1;  // as in record/image_prompt_text.h

  bool operator==(const ImagePromptRecord&) const = default;
};

// A file of weights besides the model.
struct WeightsRecord {
  std::string name;    // of its file without extension, or of its folder if the file's name says nothing ("model")
  std::string sha256;  // of its file; empty when unknown

  bool empty() const { return name.empty() && sha256.empty(); }
  bool operator==(const WeightsRecord&) const = default;
};

// How an image was generated: everything needed to regenerate it, and additional information. It is stored inside the image
// (picture_metadata.h) and in sidecar files. It contains no user names, host names or folders; file names are base names.
struct GenerationRecord {
  std::string app = program_version();
  std::string kind = "generate";
  RequestSpec request;             // the settings that were used, defaults filled in; fields without a record_key stay empty
  std::string model;               // id
  std::string model_sha256;        // of the transformer's file; empty when unknown
  std::string model_file;          // base name of that file; empty when it is a folder
  std::string quant;               // how its weights are stored: "bf16"
  bool embedded_guidance = false;  // the model takes guidance as an input
  int index = 0;                   // of the image in its batch
  std::vector<AdapterRecord> adapters;
  std::vector<PictureRecord> references;    // "image 1" of the prompt first
  std::optional<PictureRecord> canvas;      // inpaint: the image that was changed
  std::vector<PictureRecord> region_masks;  // of the regions without a rectangle, in their order
  std::vector<RegionReferenceRecord> region_references;
  std::vector<ImagePromptRecord> image_prompts;
  WeightsRecord image_prompt_adapter, image_prompt_encoder;  // empty without image prompts
  std::string mask_name, mask_sha256;                        // of the mask's file; empty without one
  std::optional<PictureRecord> mask_difference;              // inpaint: the image that the mask was made from (mask_from_diff)
  int work_width = 0, work_height = 0;  // inpaint: the size to work at that was asked for; 0: none, it follows from the mask
  struct {
    std::string by, model;  // "ollama" and the name of its model; empty: the prompt was not to be rewritten
    bool failed = false;    // the prompt was used as it is, although it was to be rewritten
  } rewriting;              // the rewritten prompt itself is in the request
  struct {
    int steps = 0, computed = 0;  // 0: the step cache was off
    double error = 0;             // estimated, of the latents
  } step_cache;
  std::string device;
  Json extra;  // further members of our JSON for one kind alone: the cells of a grid
  struct {
    double text = 0, vae_encode = 0, denoise = 0, decode = 0;
  } seconds;

  int width() const { return static_cast<int>(request.width.value_or(0)); }
  int height() const { return static_cast<int>(request.height.value_or(0)); }
  uint64_t seed() const { return static_cast<uint64_t>(request.seed.value_or(0)); }
  std::string prompt() const { return request.prompt.value_or(""); }  // as given
  std::string used_prompt() const { return request.rewritten_prompt.value_or(prompt()); }
  bool is_ours() const { return app.starts_with(kProgramName); }
};

// Version 1 of our own JSON. Private records have no prompt and no names, but keep hashes.
Json to_json(const GenerationRecord& record, bool is_private = false);

// Reads what to_json writes, also from newer programs; fields that are absent stay unset. Throws BadFile when a field has the
// wrong kind of value.
GenerationRecord record_from_json(const Json& json);

}  // namespace flux2
