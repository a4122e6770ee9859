#include "hub/locate_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "hub/folder_layout.h"
#include "hub/gguf_tokenizer.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr ModelVariable kModelVariables[] = {
    {"KLEIN_4B_MODEL_PATH", "flux.2-klein-4b"},
    {"KLEIN_9B_MODEL_PATH", "flux.2-klein-9b"},
    {"KLEIN_4B_BASE_MODEL_PATH", "flux.2-klein-base-4b"},
    {"KLEIN_9B_BASE_MODEL_PATH", "flux.2-klein-base-9b"},
    {"FLUX2_MODEL_PATH", "flux.2-dev"},
};

// The 150,000 tokens of a published model take megabytes.
bool is_toy_tokenizer(const fs::path& path) {
  constexpr uint64_t kSmall = 1 << 20;
  uint64_t bytes = 0;
  for (const fs::path& file : {path, path / "tokenizer.json", path / "vocab.json"}) {
    std::error_code missing;
    if (const uint64_t size = fs::file_size(file, missing); !missing) bytes += size;
  }
  return bytes < kSmall;
}

class PartFinder {
 public:
  PartFinder(const ModelQuery& query, const std::vector<fs::path>& folders, ModelFiles& files, const Log& log)
      : query_(query), folders_(folders), environment_(query.environment), files_(files), log_(log) {}

  void run(const ChosenModel& chosen) {
    find_vae(chosen);
    find_text_encoder(chosen);
    find_tokenizer(chosen);
  }

 private:
  // The folders that are searched for parts: the model's own folder first, then the model folders.
  std::vector<fs::path> part_roots(const ChosenModel& chosen) const {
    std::vector<fs::path> roots = {chosen.root};
    if (chosen.self_contained()) return roots;
    for (const fs::path& folder : folders_) {
      roots.push_back(folder);
      for (const fs::path& inner : folders_in(folder)) roots.push_back(inner);
    }
    return roots;
  }

  // A part that is named by its path or by a name of the registry. `by` says who named it.
  fs::path named_part(const fs::path& name, const std::string& by, ComponentKind kind) const {
    if (path_exists(name)) return name;
    if (const auto* registered = query_.registered.find(name.string(), kind)) return path_of(*registered);
    const auto near = nearest_words(name.string(), query_.registered.names(kind), 3);
    throw Error(ErrorCode::NotFound, fmt::format("the {} {}, named {}, does not exist", name_of(kind), name.string(), by),
                near.empty() ? "" : fmt::format("registered {}s with similar names: {}", name_of(kind), fmt::join(near, ", ")));
  }

  // The part that the request, the model's entry in the registry or else an environment variable names.
  std::optional<fs::path> given(const ChosenModel& chosen, const fs::path& requested, const char* variable, ComponentKind kind,
                                const std::string& preferred) {
    std::optional<fs::path> path;
    std::string by;
    if (!requested.empty()) {
      path = named_part(requested, by = "in the request", kind);
    } else if (!preferred.empty()) {
      path = named_part(preferred, by = fmt::format("by the registry for {}", chosen.registered->name), kind);
    } else if (variable && !chosen.self_contained()) {
      path = environment_.path(variable), by = fmt::format("by {}", variable);
    }
    if (path) files_.reasons.push_back(fmt::format("{} {}: named {}", name_of(kind), path->string(), by));
    return path;
  }

  [[noreturn]] void refuse_missing(const ChosenModel& chosen, ComponentKind kind) const {
    const auto match = find_variant(files_.id);
    const char* field = kind == ComponentKind::Autoencoder   ? "vae"
                        : kind == ComponentKind::TextEncoder ? "text_encoder"
                                                             : "tokenizer";
    throw Error(
        ErrorCode::NotFound,
        fmt::format("the {} of {} is missing; searched {}", name_of(kind), chosen.config().name(), joined(part_roots(chosen))),
        Hint("install it with {0}, or name it with {1}",
             {install_command(match ? match->id : kDefaultInstall), set_option(field)}));
  }

  // The first candidate that `fits`, in the model's own folder or elsewhere. If none fits, the message names a candidate of
  // the right kind that cannot be used.
  template <class Fits>
  fs::path search(const ChosenModel& chosen, ComponentKind kind, const Fits& fits) {
    std::optional<Error> refusal;
    for (const auto& [path, own] : part_candidates(chosen, kind)) {
      try {
        const Recognition r = recognise(path, log_);
        if (!r.find(kind)) continue;
        fits(required_part(r, kind), own);
        files_.reasons.push_back(fmt::format("{} {}: found", name_of(kind), path.string()));
        return path;
      } catch (const Error& e) {
        if (e.code() == ErrorCode::OutOfMemory) throw;  // this says nothing about the file
        log_.debug("{}", e.what());
        if (!refusal && own) refusal = e;
      }
    }
    if (refusal) throw *refusal;
    refuse_missing(chosen, kind);
  }

  // Candidates for a part of that kind, best first, and whether each is in the model's own folder. Parts in that folder come
  // first, then registered parts, then files in other model folders.
  std::vector<std::pair<fs::path, bool>> part_candidates(const ChosenModel& chosen, ComponentKind kind) const {
    std::vector<std::pair<fs::path, bool>> found;
    for (const fs::path& path : candidates_quietly(chosen.root, kind, log_)) found.emplace_back(path, true);
    if (chosen.self_contained()) return found;
    for (const RegisteredPart* part : query_.registered.of(kind))
      if (kind != ComponentKind::Tokenizer || !published_like(chosen.config()) || !is_toy_tokenizer(part->path))
        found.emplace_back(part->path, false);
    for (const fs::path& root : part_roots(chosen))
      if (root != chosen.root)
        for (const fs::path& path : candidates_quietly(root, kind, log_)) found.emplace_back(path, false);
    return found;
  }

  void find_vae(const ChosenModel& chosen) {
    const auto fits = [&](const Component& c, bool own) {
      // The same folders may contain autoencoders of small models, whose latents are incompatible.
      const int64_t base = c.vae->has_encoder ? c.vae->encoder_widths[0] : c.vae->decoder_widths[0];
      if (!own && base != 128 && !(base == 96 && !c.vae->has_encoder))
        fail(ErrorCode::Incompatible, "{} is the autoencoder of a small model (width {})", c.path.string(), base);
      if (!c.vae->has_encoder) log_.info("{} has no encoder: references cannot be read", c.path.string());
    };
    if (const auto path = given(chosen, query_.vae, "AE_MODEL_PATH", ComponentKind::Autoencoder,
                                chosen.registered ? chosen.registered->vae : "")) {
      required_part(recognise(*path, log_), ComponentKind::Autoencoder);
      files_.vae = *path;
      return;
    }
    files_.vae = search(chosen, ComponentKind::Autoencoder, fits);
  }

  // dev and models like it.
  static bool reads_mistral(const ChosenModel& chosen) { return chosen.config().text_width == dev_config().text_width; }

  bool is_large(const ChosenModel& chosen) const {
    return chosen.config().text_width == 12288 || (chosen.variable && std::string(chosen.variable->variant).ends_with("9b"));
  }

  [[noreturn]] void refuse_width(const ChosenModel& chosen, const fs::path& path, int64_t width, const std::string& what) const {
    const Variant* published = published_like(chosen.config());
    const std::string name = published ? published->encoder : "a text encoder";
    const int64_t wanted = chosen.config().text_width / static_cast<int64_t>(files_.defaults.text_layers.size());
    Hint hint = "use the text encoder the model was made with";
    if (published)
      hint = Hint(fmt::format("install {} with {{0}}, which puts it into text_encoder/", name), {install_command(published->id)});
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} needs {} (width {}); {} has width {} ({})", chosen.config().name(), name, wanted, path.string(),
                            width, what),
                hint);
  }

  void check_encoder(const ChosenModel& chosen, const Component& encoder) const {
    const std::vector<int>& states = files_.defaults.text_layers;
    if (encoder.decoder->hidden * static_cast<int64_t>(states.size()) != chosen.config().text_width)
      refuse_width(chosen, encoder.path, encoder.decoder->hidden, encoder.variant);
    const Variant* published = published_like(chosen.config());
    if (published && !published->encoder.starts_with(name_of(encoder.decoder->family)))
      refuse_width(chosen, encoder.path, encoder.decoder->hidden, encoder.variant);
    if (encoder.decoder->layers < states.back())
      fail(ErrorCode::Incompatible, "{} has {} layers, but the model needs the output of layer {}", encoder.path.string(),
           encoder.decoder->layers, states.back());
  }

  void find_text_encoder(const ChosenModel& chosen) {
    if (!query_.need_text_encoder) {
      files_.text_encoder = query_.text_encoder;
      return;
    }
    const char* variable = reads_mistral(chosen) ? nullptr : is_large(chosen) ? "QWEN3_8B_PATH" : "QWEN3_4B_PATH";
    if (const auto path = given(chosen, query_.text_encoder, variable, ComponentKind::TextEncoder,
                                chosen.registered ? chosen.registered->text_encoder : "")) {
      const Recognition r = recognise(*path, log_);
      check_encoder(chosen, required_part(r, ComponentKind::TextEncoder));
      files_.text_encoder = *path;
      return;
    }
    files_.text_encoder = search(chosen, ComponentKind::TextEncoder, [&](const Component& c, bool) { check_encoder(chosen, c); });
  }

  void find_tokenizer(const ChosenModel& chosen) {
    if (!query_.need_text_encoder) {
      files_.tokenizer = query_.tokenizer;
      return;
    }
    const char* variable = reads_mistral(chosen) ? nullptr
                           : is_large(chosen)    ? "QWEN3_8B_TOKENIZER_PATH"
                                                 : "QWEN3_4B_TOKENIZER_PATH";
    if (const auto path = given(chosen, query_.tokenizer, variable, ComponentKind::Tokenizer,
                                chosen.registered ? chosen.registered->tokenizer : "")) {
      if (!holds_tokenizer(*path) && path->filename() != "tokenizer.json" && path->filename() != "tekken.json" &&
          !holds_inner_tokenizer(*path))
        fail(ErrorCode::Incompatible,
             "{} contains no tokenizer: neither tokenizer.json nor tekken.json nor vocab.json with merges.txt", path->string());
      files_.tokenizer = *path;
      return;
    }
    // The encoder's own folder and its neighbours come before those of other models.
    std::vector<fs::path> found;
    for (const fs::path& root : {files_.text_encoder, files_.text_encoder.parent_path()})
      for (const fs::path& path : candidates_quietly(root, ComponentKind::Tokenizer, log_)) found.push_back(path);
    const auto candidates = part_candidates(chosen, ComponentKind::Tokenizer);
    const auto add = [&](bool of_the_model) {
      for (const auto& [path, own] : candidates)
        if (own == of_the_model && path_exists(path)) found.push_back(path);
    };
    add(true);
    if (holds_inner_tokenizer(files_.text_encoder)) found.push_back(files_.text_encoder);
    add(false);
    // Folders of several models may hold tokenizers of both families.
    const auto encoder = recognise(files_.text_encoder, log_);
    const Component* part = encoder.find(ComponentKind::TextEncoder);
    if (part && part->decoder) {
      const bool mistral = part->decoder->family == DecoderFamily::Mistral;
      std::erase_if(found, [&](const fs::path& path) {
        const auto format = likely_format(path);
        return format && (*format == PromptFormat::Mistral) != mistral;
      });
    }
    if (found.empty()) refuse_missing(chosen, ComponentKind::Tokenizer);
    files_.tokenizer = found[0];
    files_.reasons.push_back(fmt::format("tokenizer {}: found", found[0].string()));
  }

  const ModelQuery& query_;
  const std::vector<fs::path>& folders_;
  Environment environment_;
  ModelFiles& files_;
  const Log& log_;
};

}  // namespace

std::optional<std::filesystem::path> Environment::value(const char* name) const {
  const char* text = lookup_ ? lookup_(name) : nullptr;
  if (!text || !*text) return std::nullopt;
  return text;
}

std::optional<std::filesystem::path> Environment::path(const char* name) const {
  auto path = value(name);
  std::error_code unreadable;
  if (path && !std::filesystem::exists(*path, unreadable))
    throw Error(ErrorCode::NotFound, fmt::format("{} is set to {}, which does not exist", name, path->string()),
                "correct the variable, or unset it");
  return path;
}

const ModelVariable* Environment::first_model() const {
  for (const ModelVariable& v : kModelVariables)
    if (value(v.name)) return &v;
  return nullptr;
}

const ModelVariable* Environment::model_of(std::string_view variant) const {
  for (const ModelVariable& v : kModelVariables)
    if (v.variant == variant && value(v.name)) return &v;
  return nullptr;
}

std::string joined(const std::vector<fs::path>& paths) {
  std::vector<std::string> texts;
  for (const fs::path& p : paths) texts.push_back(p.string());
  return texts.empty() ? "nowhere" : fmt::format("{}", fmt::join(texts, ", "));
}

const Variant* published_like(const Flux2Config& config) {
  for (const Variant& v : variants())
    if (v.config == config) return &v;
  return nullptr;
}

fs::path path_of(const RegisteredPart& part) {
  if (path_exists(part.path)) return part.path;
  throw Error(ErrorCode::NotFound, fmt::format("{} is registered, but {} is not there", part.name, part.path.string()),
              Hint("restore the file, or unregister it with {0}", {run_command("models remove " + part.key)}));
}

std::vector<fs::path> candidates_quietly(const fs::path& root, ComponentKind kind, const Log& log) {
  try {
    return candidates_in(root, kind);
  } catch (const Error& e) {  // a damaged model_index.json of another model
    log.debug("{}", e.what());
    return {};
  }
}

void find_parts(const ChosenModel& chosen, const ModelQuery& query, const std::vector<fs::path>& folders, ModelFiles& files,
                const Log& log) {
  PartFinder(query, folders, files, log).run(chosen);
}

}  // namespace flux2
