#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "hub/recognise.h"

namespace flux2 {

enum class ModelType { Main, Vae, TextEncoder, Tokenizer, Lora, Upscaler, TinyVae, Classifier, ImageEncoder, ImagePrompt };
enum class ModelState { Ready, Missing, Damaged, Incomplete, Unsupported };

const char* name_of(ModelType type);  // "main", "vae", "text_encoder", …
const char* name_of(ModelState state);
std::optional<ModelType> model_type_named(std::string_view name);
std::optional<ModelState> model_state_named(std::string_view name);
ComponentKind component_kind(ModelType type);

// Where a model came from.
struct ModelSource {
  std::string kind;      // "path", "url" or "hub"
  std::string ref;       // the path, the address, or owner/repository
  std::string revision;  // of a hub repository: the commit

  bool operator==(const ModelSource&) const = default;
};

struct RecordedFile {
  std::filesystem::path path;
  uint64_t bytes = 0;
  std::string sha256;  // empty until computed
};

// One part of a model as the registry knows it: a transformer with what belongs to its file, an autoencoder, a text
// encoder, a tokenizer or an adapter. Paths are absolute here; the registry keeps those in the data folder relative, so
// that the folder can be moved.
struct ModelRecord {
  std::string key;   // ten hex digits that never change
  std::string name;  // unique, for people
  ModelType type = ModelType::Main;
  std::string family;   // "FLUX.2", "Qwen3", …
  std::string variant;  // "flux.2-klein-4b", "Qwen3-4B", "LoRA of rank 16 for klein 4B", …
  std::string format;   // "safetensors", "gguf", "sharded", "diffusers"
  std::string quant;    // "bf16", "fp8", "q4_k", "nvfp4, mixed", …
  std::filesystem::path path;
  bool in_place = true;  // the files belong to the user; false: this program copied or downloaded them
  ModelSource source;
  std::string sha256;  // of the one file, or of the list of hashes and names of several; empty until computed
  uint64_t bytes = 0;  // of all its files
  std::string license;
  bool gated = false;
  std::vector<std::string> triggers;
  std::string description, cover_asset;

  struct Defaults {  // what the user prefers to the model's own
    std::optional<int64_t> steps, width, height;
    std::optional<double> guidance, lora_weight;
  } defaults;
  struct Components {  // keys of the parts to use with it; empty: found by geometry
    std::string vae, text_encoder, tokenizer;
  } components;
  std::vector<std::string> related;  // keys of other records that people linked to this one
  struct Probe {                     // what the header says; 0 where it does not apply
    // context_dim is the width of the text of a transformer, of the projected vector of an image encoder, and of the vector that
    // an image-prompt adapter reads.
    int64_t hidden = 0, double_blocks = 0, single_blocks = 0, context_dim = 0, tensors = 0;
    std::optional<bool> distilled;
  } probe;

  int64_t installed_at = 0;  // seconds since 1970
  ModelState state = ModelState::Ready;
  std::string note;  // why it is not ready, or what else is worth knowing
  std::vector<RecordedFile> files;
};

// The names of app and HTTP: key, name, type, …; `files` are listed too.
Json to_json(const ModelRecord& record);

// Parts of a record as JSON objects, and back. Members that are absent or of another type keep their defaults.
Json to_json(const ModelRecord::Defaults& defaults);
Json to_json(const ModelRecord::Components& components);
Json to_json(const ModelRecord::Probe& probe);
ModelRecord::Defaults defaults_from(const Json& json);
ModelRecord::Components components_from(const Json& json);
ModelRecord::Probe probe_from(const Json& json);

// Throws InvalidArgument unless the text can be a record's name: 1 to 100 characters, no slash, nothing that a terminal
// would act on, and not the form of a key.
void check_model_name(std::string_view name);

}  // namespace flux2
