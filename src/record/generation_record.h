#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace flux2 {

inline constexpr const char* kProgramName = "flux2.cpp";
std::string program_version();  // "flux2.cpp 0.1.0"

// A picture that another one was made from.
struct PictureRecord {
  std::string name;    // base name of its file
  std::string sha256;  // of its file
  int width = 0, height = 0;

  bool operator==(const PictureRecord&) const = default;
};

// Which part of a canvas was made anew.
struct MaskRecord {
  std::string sha256;              // of the mask's file; empty without one
  std::vector<std::string> boxes;  // "x,y,w,h"
  bool inverted = false;
  std::string extended;            // "l,t,r,b"; empty: by nothing
  int grow = 0, feather = 0;
  bool aligned = true;
  std::string mode = "ours";

  bool operator==(const MaskRecord&) const = default;
};

// An adapter that changed the model.
struct AdapterRecord {
  std::string name;    // base name of its file, without extension
  std::string sha256;  // of its file; empty when not known
  double weight = 1;
  std::string layers = {};  // a pattern where not all of its layers were used

  bool operator==(const AdapterRecord&) const = default;
};

// How a picture was made: everything needed to make it again, and what is good to know about it. It travels inside the
// picture (picture_metadata.h) and in sidecar files. No user names, host names or folders: names are base names.
struct GenerationRecord {
  std::string app = program_version();
  std::string kind = "generate";
  std::string prompt, negative;
  std::string model;         // id
  std::string model_sha256;  // of the transformer's file; empty when not known
  std::string quant;         // how its weights are stored: "bf16"
  int width = 0, height = 0, steps = 0;
  double guidance = 1.0;
  std::optional<double> cfg;       // true guidance
  bool embedded_guidance = false;  // the model takes guidance as an input
  uint64_t seed = 0;
  int index = 0;
  std::string sampler = "euler", schedule = "model", noise = "torch-cpu", profile = "fast";
  std::string time_rounding = "exact";
  std::optional<double> shift;
  double strength = 1.0;  // below 1: begun with a picture
  std::vector<AdapterRecord> adapters;
  std::vector<PictureRecord> references;  // "image 1" of the prompt first
  bool ref_kv = false;                    // their keys and values were reused
  bool negative_references = true;        // the negative pass saw them
  bool context = true;                    // the picture begun with is one of them
  std::optional<PictureRecord> canvas;    // inpaint
  std::optional<MaskRecord> mask;
  std::string device;
  Json extra;  // further members of our JSON, of one kind alone: the cells of a grid
  struct {
    double text = 0, vae_encode = 0, denoise = 0, decode = 0;
  } seconds;
};

// Version 1 of our own JSON. Private: without prompt and names; hashes stay.
Json to_json(const GenerationRecord& record, bool is_private = false);

// Reads what to_json writes, also from newer programs; fields that are absent keep their defaults. Throws BadFile when
// a field has the wrong kind of value.
GenerationRecord record_from_json(const Json& json);

}  // namespace flux2
