#include "hub/registry/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "base/path_exists.h"
#include "hub/folder_layout.h"
#include "hub/registry/part_files.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/known_files.h"
#include "hub/variants.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// ---- types ----

// The role that other tools give to a folder with this name.
std::optional<ModelType> role_of(const fs::path& path) {
  for (fs::path at = path.parent_path(); !at.filename().empty(); at = at.parent_path()) {
    const std::string name = at.filename().string();
    if (name == "diffusion_models" || name == "unet" || name == "transformer") return ModelType::Main;
    if (name == "vae") return ModelType::Vae;
    if (name == "text_encoders" || name == "clip" || name == "text_encoder") return ModelType::TextEncoder;
    if (name == "loras" || name == "lora") return ModelType::Lora;
    if (name == "upscale_models") return ModelType::Upscaler;
    if (name == "clip_vision") return ModelType::ImageEncoder;
    if (name == "ipadapter" || name == "ipadapters") return ModelType::ImagePrompt;
    if (at == at.parent_path()) break;
  }
  return std::nullopt;
}

std::optional<ModelType> type_of(const Component& c) {
  switch (c.kind) {
    case ComponentKind::Transformer: return ModelType::Main;
    case ComponentKind::Autoencoder: return c.family == "tiny autoencoder" ? ModelType::TinyVae : ModelType::Vae;
    case ComponentKind::TextEncoder: return ModelType::TextEncoder;
    case ComponentKind::Tokenizer: return ModelType::Tokenizer;
    case ComponentKind::Adapter: return ModelType::Lora;
    case ComponentKind::Upscaler: return ModelType::Upscaler;
    case ComponentKind::Classifier: return ModelType::Classifier;
    case ComponentKind::ImageEncoder: return ModelType::ImageEncoder;
    case ComponentKind::ImagePrompt: return ModelType::ImagePrompt;
    case ComponentKind::Unknown: return role_of(c.path);
  }
  return std::nullopt;
}

// ---- names ----

// The name of the folder, file or repository that a part belongs to; generic names such as "model" are skipped.
std::string owner_of(const fs::path& path) {
  static const std::set<std::string> kSilent = {"transformer",
                                                "vae",
                                                "text_encoder",
                                                "tokenizer",
                                                "diffusion_models",
                                                "unet",
                                                "text_encoders",
                                                "clip",
                                                "loras",
                                                "split_files",
                                                "models",
                                                "upscale_models",
                                                "classifiers",
                                                "clip_vision",
                                                "ipadapter",
                                                "ipadapters",
                                                "diffusion_pytorch_model",
                                                "model",
                                                "ae",
                                                "."};
  if (const auto snapshot = hub_snapshot_of(path)) return snapshot->repository.substr(snapshot->repository.find('/') + 1);
  fs::path at = is_folder(path) ? path : path.parent_path() / path.stem();
  for (; !at.filename().empty() && at != at.parent_path(); at = at.parent_path()) {
    const std::string name = at.filename().string();
    const bool part = name.find("-of-") != std::string::npos;
    if (!kSilent.contains(lower(name)) && !part) return name;
  }
  return "model";
}

// The variant a published transformer is named after: flux-2-klein-9b-kv-fp8.safetensors.
std::optional<Variant> variant_of(const KnownFile& known) {
  std::string stem = fs::path(known.path).stem().string();
  for (const char* tail : {"-fp8", "-nvfp4"})
    if (stem.ends_with(tail)) stem.resize(stem.size() - std::string_view(tail).size());
  return find_variant(stem);
}

const Variant* published(const Component& c, const KnownFile* known) {
  if (!c.flux2) return nullptr;
  for (const Variant& v : variants()) {
    if (v.config != *c.flux2) continue;
    if (const auto told = known ? variant_of(*known) : std::nullopt) {
      if (v.id == told->id) return &v;
    } else if (c.flux2->guidance || (v.distilled == c.distilled.value_or(true) && v.kv == c.kv)) {
      return &v;
    }
  }
  return nullptr;
}

std::string with_quant(const std::string& name, const std::string& quant) {
  const std::string first = lower(quant.substr(0, quant.find(',')));
  const bool plain = first.empty() || first == "bf16" || first == "f16" || first == "f32";
  return plain || lower(name).find(first) != std::string::npos ? name : name + "-" + first;
}

std::string suggested_name(const ModelRecord& r, const Component& c, const Variant* variant) {
  const std::string owner = owner_of(r.path);
  switch (r.type) {
    case ModelType::Main: {
      if (variant) return with_quant(variant->id, r.quant);
      std::optional<Json> index;
      try {
        index = model_index_near(r.path);
      } catch (const Error&) {  // said when the model is opened
      }
      if (index && index->contains("name") && (*index)["name"].is_string()) return (*index)["name"].get<std::string>();
      return owner;
    }
    case ModelType::Vae:
      if (c.vae && c.vae->encoder_widths[0] == 128)
        return c.variant == "full" ? "flux.2-vae" : name_from("flux.2-vae " + c.variant);
      return owner + (lower(owner).find("vae") == std::string::npos ? "-vae" : "");
    case ModelType::TextEncoder:
      if (!c.variant.empty() && c.variant.find(' ') == std::string::npos) return with_quant(lower(c.variant), r.quant);
      return owner + "-text-encoder";
    case ModelType::Tokenizer: return owner + "-tokenizer";
    case ModelType::Upscaler: return r.path.stem().string();  // a repository holds several
    default: return owner;
  }
}

// ---- the rest of a record ----

std::string format_of(const fs::path& path, const std::vector<RecordedFile>& files, const std::string& container) {
  const bool diffusers = is_folder(path) && fs::exists(path.parent_path() / "model_index.json");
  if (diffusers) return "diffusers";
  const auto weights = std::count_if(files.begin(), files.end(), [](const RecordedFile& f) {
    return f.path.extension() == ".safetensors" || f.path.extension() == ".gguf";
  });
  if (weights > 1) return "sharded";
  return container == "GGUF" || path.extension() == ".gguf" ? "gguf" : weights == 0 ? "files" : "safetensors";
}

std::vector<std::string> triggers_in(const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> phrases;
  const auto at = metadata.find("modelspec.trigger_phrase");
  if (at != metadata.end() && !at->second.empty() && at->second.size() < 4096) phrases.push_back(at->second);
  return phrases;
}

std::string confidence_of(const Component& c, const Variant* variant, const KnownFile* known) {
  if (known) return "certain";
  if (c.kind == ComponentKind::Unknown) return "none";
  if (c.kind == ComponentKind::Transformer && c.usable()) return variant && !c.distilled_assumed ? "certain" : "likely";
  if (c.kind == ComponentKind::Adapter && c.family.empty()) return "guess";
  return "certain";
}

Described described(const Component& c, const Recognition& r) {
  Described d;
  ModelRecord& record = d.record;
  const auto type = type_of(c);
  record.type = type.value_or(ModelType::Main);
  d.type = type ? name_of(*type) : "unknown";
  record.path = fs::absolute(c.path).lexically_normal();
  record.files = part_files(record.path, record.type);
  for (const RecordedFile& f : record.files) record.bytes += f.bytes;
  const KnownFile* known = nullptr;
  if (!is_folder(record.path)) {
    const std::string hash = hub_hash_of(record.path);
    if (!hash.empty() && !record.files.empty()) record.files[0].sha256 = record.sha256 = hash;
    known = find_known_file(hash);
  }
  const Variant* variant = published(c, known);

  record.family = c.family;
  record.variant = variant ? variant->id : c.variant;
  record.quant = c.storage;
  record.format = format_of(record.path, record.files, r.container);
  record.triggers = c.kind == ComponentKind::Adapter ? triggers_in(r.metadata) : std::vector<std::string>{};
  record.probe.tensors = c.tensors;
  if (c.flux2) {
    record.probe.hidden = c.flux2->hidden;
    record.probe.double_blocks = c.flux2->double_blocks;
    record.probe.single_blocks = c.flux2->single_blocks;
    record.probe.context_dim = c.flux2->text_width;
    if (!c.distilled_assumed) record.probe.distilled = c.distilled;
  }
  if (c.decoder) record.probe.hidden = c.decoder->hidden;
  if (c.upscaler) record.probe.hidden = c.upscaler->width;
  if (c.classifier) record.probe.hidden = c.classifier->hidden;
  if (c.image_encoder) {
    record.probe.hidden = c.image_encoder->hidden;
    record.probe.context_dim = c.image_encoder->projection;
  }
  if (c.image_prompt) {
    record.probe.hidden = c.image_prompt->hidden;
    record.probe.double_blocks = c.image_prompt->double_blocks;
    record.probe.context_dim = c.image_prompt->feature_width;
  }
  if (c.vae) record.probe.hidden = c.vae->has_encoder ? c.vae->encoder_widths[0] : c.vae->decoder_widths[0];
  if (variant) {
    record.license = variant->licence;
    record.gated = record.license != "Apache-2.0";
  }
  use_known_hash(record);
  if (known) d.evidence.push_back(fmt::format("its hash is that of {} in {}", known->path, known->repository));
  if (const auto snapshot = hub_snapshot_of(record.path)) record.source = {"hub", snapshot->repository, snapshot->commit};
  else record.source = {"path", record.path.string(), ""};

  d.confidence = confidence_of(c, variant, known);
  d.evidence.insert(d.evidence.end(), c.evidence.begin(), c.evidence.end());
  d.needs = c.needs;
  d.problem = c.problem, d.hint = c.hint;
  const auto role = role_of(record.path);
  if (role && type && *role != *type && *type != ModelType::Tokenizer && *type != ModelType::TinyVae)
    d.evidence.push_back(fmt::format("lies in a folder for type {}, yet it is of type {}", name_of(*role), d.type));
  if (record.type == ModelType::Upscaler && c.kind == ComponentKind::Unknown)
    d.problem = "a model for enlarging images of a kind that this version does not run",
    d.hint = Hint("RRDBNet models (ESRGAN, Real-ESRGAN) can be used; {0} makes safetensors of their .pth files",
                  {run_command("convert")});
  if (record.type == ModelType::TinyVae) {
    if (c.variant == "FLUX.2") d.problem.clear(), d.hint = Hint();
    else d.problem = "a tiny autoencoder of another model, which cannot preview FLUX.2";
  }
  const bool own = c.family == "FLUX.2" && c.kind == ComponentKind::Transformer;
  record.state = d.usable() ? ModelState::Ready : own ? ModelState::Damaged : ModelState::Unsupported;
  record.note = d.problem;
  record.name = name_from(suggested_name(record, c, variant));
  return d;
}

}  // namespace

std::string name_from(std::string text) {
  constexpr size_t kLongest = 80;
  for (char& c : text)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f || c == '/' || c == '\\' || c == ':') c = '-';
  text = text.substr(0, kLongest);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80 && text.size() == kLongest) text.pop_back();
  while (text.starts_with('-') || text.starts_with('.')) text.erase(0, 1);
  return text.empty() ? "model" : text;
}

void use_known_hash(ModelRecord& record) {
  const KnownFile* known = find_known_file(record.sha256);
  if (!known) return;
  record.gated = known->gated;
  if (const auto variant = variant_of(*known)) {
    record.license = variant->licence;
    record.variant = variant->id;
    record.probe.distilled = variant->distilled;
  }
}

std::vector<Described> describe(const Recognition& recognition) {
  std::vector<Described> parts;
  for (const Component& c : recognition.components) parts.push_back(described(c, recognition));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Described& a, const Described& b) { return a.record.type < b.record.type; });
  return parts;
}

std::vector<Described> identify(const fs::path& path, const Log& log) {
  std::error_code unreadable;
  if (!fs::exists(path, unreadable)) fail(ErrorCode::NotFound, "{} does not exist", path.string());
  Component nothing{.path = path};
  ModelState state = ModelState::Unsupported;
  try {
    const Recognition recognition = recognise(path, log);
    std::vector<Described> parts = describe(recognition);
    if (!parts.empty()) return parts;
    nothing.problem = recognition.kind == Recognition::Kind::Image
                          ? fmt::format("this is a {} image, not a model", recognition.container)
                          : "there is no model in it";
  } catch (const Error& e) {
    if (e.code() == ErrorCode::OutOfMemory) throw;  // this says nothing about the file
    nothing.problem = e.what();
    nothing.hint = e.hint().plain();
    state = e.code() == ErrorCode::NotFound ? ModelState::Incomplete : ModelState::Damaged;
  }
  Described part = described(nothing, Recognition{.path = path});
  part.record.state = state;
  return {part};
}

void require_usable(const std::vector<Described>& parts, const fs::path& path) {
  for (const Described& part : parts)
    if (!part.usable()) {
      const std::string where = path.string();
      const bool named = part.problem.starts_with(where);
      throw Error(part.record.state == ModelState::Unsupported ? ErrorCode::Incompatible : ErrorCode::BadFile,
                  named ? part.problem : where + ": " + part.problem, part.hint);
    }
}

}  // namespace flux2
