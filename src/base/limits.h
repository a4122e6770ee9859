#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace flux2 {

// What this program accepts from files, servers and requests. A limit is checked before memory or time is spent. Each part is
// plain data with defaults for a person at their own machine; Limits::for_server() has those for requests from strangers. A
// person can change most values with the setting `limits.NAME` (limit_fields()). Readers take the part that they need as an
// argument.

// JSON that was not written by this program: configurations, metadata in images and adapters, answers of servers.
struct JsonLimits {
  size_t bytes = size_t{16} << 20;
  size_t keys = 100'000;      // in all objects together
  size_t values = 2'000'000;  // in all objects and arrays together
  int depth = 64;
  bool refuse_duplicate_keys = false;  // otherwise the last of two equal keys is kept
  bool can_be_raised = false;          // by a setting; errors then say how
};

// Text files: prompts, wildcards, TOML, model_index.json and other JSON configurations, tokens and notes.
struct TextLimits {
  size_t bytes = size_t{64} << 20;
};

// Image files: references, masks, images whose settings are reused.
struct ImageLimits {
  int side = 65500;
  int64_t pixels = int64_t{1} << 28;
  size_t file_bytes = size_t{1} << 30;       // the encoded image
  size_t metadata_bytes = size_t{64} << 20;  // text chunks, EXIF, XMP and colour profile of one file, decompressed
};

// Headers of model files. They are far above those of any real model, and no setting changes them.
struct WeightLimits {
  size_t header_bytes = 100'000'000;  // of a safetensors file; also the size of an index
  size_t gguf_header_bytes = size_t{1} << 30;
  size_t tensors = 1'000'000;  // per file
};

// One request. The application layer checks these before anything is loaded.
struct RequestLimits {
  int64_t side = 4096;                    // width and height of an image to generate
  int64_t pixels = int64_t{4096} * 4096;  // width · height
  int64_t batch = 1024;                   // images of one prompt
  int64_t repeat = 100'000;               // repetitions of a whole run
  int64_t steps = 256;
  int64_t references = 16;
  int64_t adapters = 64;
  int64_t prompt_bytes = 1 << 20;                   // of one prompt, after styles and wildcards
  int64_t prompts = 100'000;                        // of one run
  int64_t reference_pixels = int64_t{4096} * 4096;  // of a reference that is not scaled down
};

// The process and its files.
struct ProcessLimits {
  int64_t threads = 1024;
  int64_t queue = 1000;                         // requests that wait
  uint64_t download_bytes = uint64_t{1} << 40;  // of one file
};

struct Limits {
  RequestLimits request;
  ImageLimits image;
  TextLimits text;
  JsonLimits json = {.can_be_raised = true};
  WeightLimits weights;
  ProcessLimits process;

  static Limits for_server();
};

// A limit as a setting: "limits.NAME" in the user configuration, FLUX2_LIMITS_NAME in the environment.
struct LimitField {
  const char* name;  // "image-pixels"
  const char* help;
  uint64_t low, high;
  uint64_t (*get)(const Limits&);
  void (*set)(Limits&, uint64_t);
};
const std::vector<LimitField>& limit_fields();
const LimitField* find_limit(std::string_view name);

// Says how to raise a limit far enough for `needed`.
Hint raise_limit(std::string_view name, uint64_t needed);

// Throws unless found ≤ allowed. `what` contains {} for the number found; the message also states the limit, and the hint says
// how to raise it. Values of limits whose names end in "bytes" are printed as sizes.
//   check_limit("json-keys", keys, limits.keys, "the JSON text has {} keys");
void check_limit(std::string_view name, uint64_t found, uint64_t allowed, std::string_view what,
                 ErrorCode code = ErrorCode::BadFile);

}  // namespace flux2
