#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/edit_distance.h"
#include "base/error.h"
#include "hub/environment.h"
#include "hub/folder_layout.h"
#include "hub/gguf_tokenizer.h"
#include "hub/model_files.h"
#include "hub/model_index.h"
#include "hub/recognise.h"
#include "hub/training_kind.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultInstall = "flux.2-klein-4b";

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

fs::path whole(const fs::path& path) { return fs::absolute(path).lexically_normal(); }

bool is_folder(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_directory(path, unreadable);
}

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

std::string joined(const std::vector<fs::path>& paths) {
  std::vector<std::string> texts;
  for (const fs::path& p : paths) texts.push_back(p.string());
  return texts.empty() ? "nowhere" : fmt::format("{}", fmt::join(texts, ", "));
}

// The transformer that was chosen and everything its choice implies.
struct Chosen {
  Component component;
  fs::path root;                // where its other parts are looked for first
  Json index = Json::object();  // model_index.json of the root
  TrainingKind training;
  const ModelVariable* variable = nullptr;  // the environment variable that named it
  const RegisteredPart* registered = nullptr;  // its entry in the registry
  bool bundled = false;

  const Flux2Config& config() const { return *component.flux2; }
  bool is_trained_like(const Variant& v) const { return training.distilled == v.distilled && training.kv == v.kv; }
  // A model that describes itself is complete: parts of published models do not fit it.
  bool self_contained() const { return bundled || (!variable && index.contains("flux2")); }
};

class Locator {
 public:
  Locator(const ModelQuery& query, const Log& log)
      : query_(query), log_(log), environment_(query.environment), folders_(query.folders) {
    if (const auto folder = environment_.path("FLUX_WEIGHTS_PATH")) folders_.insert(folders_.begin(), *folder);
  }

  ModelFiles run() {
    const Chosen chosen = choose();
    files_.transformer = chosen.component.path;
    files_.bundled = chosen.bundled;
    files_.distilled = chosen.training.distilled;
    describe(chosen);
    find_vae(chosen);
    find_text_encoder(chosen);
    find_tokenizer(chosen);
    return std::move(files_);
  }

 private:
  // ---- which transformer ----

  Chosen choose() {
    if (!query_.transformer.empty()) {
      if (!is_there(query_.transformer)) {
        if (const auto* part = query_.registered.find(query_.transformer.string(), ComponentKind::Transformer))
          return open_registered(*part);
      }
      const bool in_folder = !query_.model.empty() && is_folder(query_.model);
      return open(query_.transformer, in_folder ? fs::path(query_.model) : model_root(query_.transformer),
                  "named by --dit");
    }
    if (!query_.model.empty()) return choose_named(query_.model);
    if (const auto variable = environment_.first_model()) return open_variable(*variable);
    const std::vector<Chosen> installed = installed_models();
    if (installed.size() == 1) return installed[0];
    if (installed.size() > 1) refuse_several(installed);
    if (!query_.bundled.empty() && is_there(query_.bundled)) return open_bundled();
    throw Error(
        ErrorCode::NotFound, fmt::format("no model is installed; looked in {}", joined(folders_)),
        fmt::format("`flux2 models install {}` brings one, or name a file or folder with --model", kDefaultInstall));
  }

  Chosen choose_named(const std::string& name) {
    if (is_there(name)) return is_folder(name) ? open_folder(name) : open(name, model_root(name), "named by --model");
    const auto variant = find_variant(name);
    if (const auto* variable = variant ? environment_.model_of(variant->id) : nullptr) return open_variable(*variable);
    if (const auto* part = query_.registered.find(name, ComponentKind::Transformer)) return open_registered(*part);
    if (variant) return choose_variant(*variant);
    if (is_bundled_name(name)) return open_bundled();
    for (const fs::path& folder : folders_)
      if (fs::path(name).is_relative() && is_there(folder / name)) return choose_named((folder / name).string());
    if (name.find('/') != std::string::npos || name.ends_with(".safetensors") || name.ends_with(".gguf"))
      fail(ErrorCode::NotFound, "{} does not exist", name);
    std::vector<std::string> known = query_.registered.names(ComponentKind::Transformer);
    for (const Variant& v : variants())
      if (std::find(known.begin(), known.end(), v.id) == known.end()) known.push_back(v.id);
    std::vector<std::string> near = closest_variants(name);
    if (!query_.registered.of(ComponentKind::Transformer).empty()) near = nearest_words(name, known, 3);
    throw Error(ErrorCode::NotFound, fmt::format("unknown model {}", name),
                fmt::format("the closest known ids are {}; a file or folder can be named too", fmt::join(near, ", ")));
  }

  Chosen choose_variant(const Variant& wanted) {
    for (const Chosen& c : installed_models(&wanted))
      if (c.config() == wanted.config && (wanted.config.guidance || c.is_trained_like(wanted))) return c;
    throw Error(ErrorCode::NotFound, fmt::format("{} is not installed; looked in {}", wanted.id, joined(folders_)),
                fmt::format("`flux2 models install {}` brings it", wanted.id));
  }

  // Every transformer that is registered or lies in the folders, one for a folder that describes a single model. Folders
  // called like the wanted variant come first.
  std::vector<Chosen> installed_models(const Variant* wanted = nullptr) {
    std::vector<fs::path> roots;
    for (const fs::path& folder : folders_) {
      roots.push_back(folder);
      for (const fs::path& inner : folders_in(folder)) roots.push_back(inner);
    }
    if (wanted)
      std::stable_partition(roots.begin(), roots.end(), [&](const fs::path& root) {
        const auto named = find_variant(root.filename().string());
        return named && named->id == wanted->id;
      });
    std::vector<Chosen> found;
    std::set<fs::path> seen;
    for (const RegisteredPart* part : query_.registered.of(ComponentKind::Transformer)) {
      seen.insert(whole(part->path));
      try {
        found.push_back(chosen_from(recognise(part->path, log_), model_root(part->path), part));
      } catch (const Error& e) {
        log_.debug("{}", e.what());
      }
    }
    for (const fs::path& root : roots) {
      for (const fs::path& path : candidates_quietly(root, ComponentKind::Transformer)) {
        if (!seen.insert(whole(path)).second) continue;
        try {
          found.push_back(chosen_from(recognise(path, log_), model_root(path)));
        } catch (const Error& e) {
          log_.debug("{}", e.what());
          continue;
        }
        if (is_there(root / "model_index.json")) break;
      }
    }
    return found;
  }

  [[noreturn]] void refuse_several(const std::vector<Chosen>& installed) {
    std::vector<std::string> names;
    for (const Chosen& c : installed) names.push_back(c.registered ? c.registered->name : c.component.path.string());
    throw Error(ErrorCode::InvalidArgument, fmt::format("several models are installed: {}", fmt::join(names, ", ")),
                "choose one with --model");
  }

  // ---- opening candidates ----

  Chosen chosen_from(const Recognition& r, const fs::path& root, const RegisteredPart* registered = nullptr) const {
    Chosen chosen{.component = require(r, ComponentKind::Transformer), .root = root, .registered = registered};
    const auto index = model_index_of(root);
    if (index) chosen.index = *index;
    chosen.training = training_kind({.base = query_.base,
                                     .model_index = index ? &*index : nullptr,
                                     .metadata = r.metadata,
                                     .path = chosen.component.path});
    if (!query_.base && registered && registered->distilled)
      chosen.training = {*registered->distilled, registered->kv, "so it is registered"};
    chosen.training.kv = chosen.training.kv && chosen.config() == klein_9b_config();
    return chosen;
  }

  Chosen open(const fs::path& path, const fs::path& root, const std::string& why) {
    Chosen chosen = chosen_from(recognise(path, log_), root);
    files_.reasons.push_back(fmt::format("transformer {}: {}", path.string(), why));
    return chosen;
  }

  Chosen open_registered(const RegisteredPart& part) {
    const fs::path path = path_of(part);
    files_.reasons.push_back(fmt::format("transformer {}: registered as {}", path.string(), part.name));
    return chosen_from(recognise(path, log_), model_root(path), &part);
  }

  static fs::path path_of(const RegisteredPart& part) {
    if (is_there(part.path)) return part.path;
    throw Error(ErrorCode::NotFound, fmt::format("{} is registered, but {} is not there", part.name, part.path.string()),
                fmt::format("put it back, or take it off the list: `flux2 models remove {}`", part.key));
  }

  Chosen open_folder(const fs::path& folder) {
    std::vector<Chosen> found;
    std::optional<Error> refusal;
    const bool one_model = model_index_of(folder).has_value();
    for (const fs::path& path : candidates_in(folder, ComponentKind::Transformer)) {
      try {
        const Recognition r = recognise(path, log_);
        if (!r.find(ComponentKind::Transformer)) continue;
        found.push_back(chosen_from(r, folder));
        if (one_model) break;
      } catch (const Error& e) {
        if (!refusal) refusal = e;
      }
    }
    if (found.size() > 1) refuse_several(found);
    if (found.empty() && refusal) throw *refusal;
    if (found.empty())
      throw Error(ErrorCode::NotFound, fmt::format("folder {} holds no FLUX.2 transformer", folder.string()),
                  fmt::format("`flux2 models install {}` brings one", kDefaultInstall));
    files_.reasons.push_back(
        fmt::format("transformer {}: found in {}", found[0].component.path.string(), folder.string()));
    return found[0];
  }

  Chosen open_variable(const ModelVariable& variable) {
    const fs::path path = *environment_.path(variable.name);
    Chosen chosen = open(path, model_root(path), fmt::format("named by {}", variable.name));
    const Variant variant = *find_variant(variable.variant);
    if (const Variant* published = published_like(chosen.config()); published && published->config != variant.config)
      throw Error(ErrorCode::Incompatible,
                  fmt::format("{} should name a {} model; {} is {}", variable.name, variant.config.name(),
                              chosen.component.path.string(), chosen.config().name()),
                  "correct the variable, or unset it");
    chosen.variable = &variable;
    if (!query_.base) chosen.training = {variant.distilled, false, fmt::format("named by {}", variable.name)};
    return chosen;
  }

  Chosen open_bundled() {
    Chosen chosen = in_context("the bundled model", [&] { return open_folder(query_.bundled); });
    chosen.bundled = true;
    return chosen;
  }

  bool is_bundled_name(const std::string& name) const {
    if (query_.bundled.empty() || !is_there(query_.bundled)) return false;
    const auto index = model_index_of(query_.bundled);
    return name == query_.bundled.filename() || (index && index->value("name", Json()) == name);
  }

  // ---- what it is and how it runs ----

  static const Variant* published_like(const Flux2Config& config) {
    for (const Variant& v : variants())
      if (v.config == config) return &v;
    return nullptr;
  }

  void describe(const Chosen& chosen) {
    const Flux2Config& config = chosen.config();
    const Variant* variant = nullptr;
    for (const Variant& v : variants())
      if (v.config == config && (config.guidance || chosen.is_trained_like(v))) variant = &v;
    if (variant) {
      files_.id = variant->id;
      files_.defaults = variant->defaults;
      files_.distilled = variant->distilled;
      files_.kv = variant->kv;
    } else {
      files_.id = chosen.component.path.stem().string();
      if (is_folder(chosen.component.path)) files_.id = chosen.root.filename().string();
      if (config.guidance) files_.defaults = find_variant("dev")->defaults;
      else if (!chosen.training.distilled) files_.defaults = find_variant("klein-base-4b")->defaults;
      if (!chosen.self_contained()) log_.warn("{}: {}", chosen.component.path.string(), config.name());
    }
    files_.reasons.push_back(config.name());
    if (!config.guidance) {
      files_.reasons.push_back(
          fmt::format("{}: {}", chosen.training.distilled ? "distilled" : "base", chosen.training.reason));
      if (chosen.training.assumed)
        log_.info("{} is taken for a distilled model: {} steps, guidance {}; --base changes that",
                  chosen.component.path.string(), files_.defaults.steps, files_.defaults.guidance);
    }
    apply_model_index(chosen.index, chosen.root / "model_index.json", files_);
    if (chosen.registered) apply_preferences(*chosen.registered);
  }

  void apply_preferences(const RegisteredPart& part) {
    ModelDefaults& d = files_.defaults;
    if (part.steps) d.steps = static_cast<int>(*part.steps);
    if (part.width) d.width = static_cast<int>(*part.width);
    if (part.height) d.height = static_cast<int>(*part.height);
    if (part.guidance && d.guidance_kind != ModelDefaults::None) d.guidance = *part.guidance;
  }

  // ---- its parts ----

  // Where parts are looked for: the model's own folder first, then wherever models are installed.
  std::vector<fs::path> part_roots(const Chosen& chosen) const {
    std::vector<fs::path> roots = {chosen.root};
    if (chosen.self_contained()) return roots;
    for (const fs::path& folder : folders_) {
      roots.push_back(folder);
      for (const fs::path& inner : folders_in(folder)) roots.push_back(inner);
    }
    return roots;
  }

  std::vector<fs::path> candidates_quietly(const fs::path& root, ComponentKind kind) const {
    try {
      return candidates_in(root, kind);
    } catch (const Error& e) {  // a damaged model_index.json of another model
      log_.debug("{}", e.what());
      return {};
    }
  }

  // A part that an option names: a path, or a name of the registry.
  fs::path named_part(const fs::path& option, const char* option_name, ComponentKind kind) const {
    if (is_there(option)) return option;
    if (const auto* registered = query_.registered.find(option.string(), kind)) return path_of(*registered);
    const auto near = nearest_words(option.string(), query_.registered.names(kind), 3);
    throw Error(ErrorCode::NotFound, fmt::format("{} {} does not exist", option_name, option.string()),
                near.empty() ? "" : fmt::format("registered {}s with names like it: {}", name_of(kind), fmt::join(near, ", ")));
  }

  // The part that an option, the model's entry in the registry or else an environment variable names.
  std::optional<fs::path> given(const Chosen& chosen, const fs::path& option, const char* option_name,
                                const char* variable, ComponentKind kind, const std::string& preferred) {
    std::optional<fs::path> path;
    std::string by;
    if (!option.empty()) {
      path = named_part(option, option_name, kind), by = option_name;
    } else if (!preferred.empty()) {
      path = named_part(preferred, chosen.registered->name.c_str(), kind), by = "the registry";
    } else if (!chosen.self_contained()) {
      path = environment_.path(variable), by = variable;
    }
    if (path) files_.reasons.push_back(fmt::format("{} {}: named by {}", name_of(kind), path->string(), by));
    return path;
  }

  [[noreturn]] void refuse_missing(const Chosen& chosen, const char* part, const char* option) const {
    const auto match = find_variant(files_.id);
    throw Error(
        ErrorCode::NotFound,
        fmt::format("the {} of {} is missing; looked in {}", part, chosen.config().name(), joined(part_roots(chosen))),
        fmt::format("`flux2 models install {}` brings it, or name it with {}", match ? match->id : kDefaultInstall,
                    option));
  }

  // The first candidate that `fits`, in the model's own folder or elsewhere. A candidate of the kind that cannot be
  // used is worth a message of its own when there is no better one.
  template <class Fits>
  fs::path search(const Chosen& chosen, ComponentKind kind, const char* option, const Fits& fits) {
    std::optional<Error> refusal;
    for (const auto& [path, own] : part_candidates(chosen, kind)) {
      try {
        const Recognition r = recognise(path, log_);
        if (!r.find(kind)) continue;
        fits(require(r, kind), own);
        files_.reasons.push_back(fmt::format("{} {}: found", name_of(kind), path.string()));
        return path;
      } catch (const Error& e) {
        log_.debug("{}", e.what());
        if (!refusal && own) refusal = e;
      }
    }
    if (refusal) throw *refusal;
    refuse_missing(chosen, name_of(kind), option);
  }

  // What may be a part of that kind, best first, and whether it lies in the model's own folder. Registered parts come after
  // the model's own and before those that merely lie in a model folder.
  std::vector<std::pair<fs::path, bool>> part_candidates(const Chosen& chosen, ComponentKind kind) const {
    std::vector<std::pair<fs::path, bool>> found;
    for (const fs::path& path : candidates_quietly(chosen.root, kind)) found.emplace_back(path, true);
    if (chosen.self_contained()) return found;
    for (const RegisteredPart* part : query_.registered.of(kind))
      if (kind != ComponentKind::Tokenizer || !published_like(chosen.config()) || !is_toy_tokenizer(part->path))
        found.emplace_back(part->path, false);
    for (const fs::path& root : part_roots(chosen))
      if (root != chosen.root)
        for (const fs::path& path : candidates_quietly(root, kind)) found.emplace_back(path, false);
    return found;
  }

  void find_vae(const Chosen& chosen) {
    const auto fits = [&](const Component& c, bool own) {
      // Autoencoders of small models lie in the same folders, and their latents mean something else.
      const int64_t base = c.vae->has_encoder ? c.vae->encoder_widths[0] : c.vae->decoder_widths[0];
      if (!own && base != 128 && !(base == 96 && !c.vae->has_encoder))
        fail(ErrorCode::Incompatible, "{} is the autoencoder of a small model (width {})", c.path.string(), base);
      if (!c.vae->has_encoder) log_.info("{} has no encoder: references cannot be read", c.path.string());
    };
    if (const auto path = given(chosen, query_.vae, "--vae", "AE_MODEL_PATH", ComponentKind::Autoencoder,
                                chosen.registered ? chosen.registered->vae : "")) {
      require(recognise(*path, log_), ComponentKind::Autoencoder);
      files_.vae = *path;
      return;
    }
    files_.vae = search(chosen, ComponentKind::Autoencoder, "--vae", fits);
  }

  bool is_large(const Chosen& chosen) const {
    return chosen.config().text_width == 12288 ||
           (chosen.variable && std::string(chosen.variable->variant).ends_with("9b"));
  }

  [[noreturn]] void refuse_width(const Chosen& chosen, const fs::path& path, int64_t width,
                                 const std::string& what) const {
    const Variant* published = published_like(chosen.config());
    const std::string name = published ? published->encoder : "a text encoder";
    const int64_t wanted = chosen.config().text_width / static_cast<int64_t>(files_.defaults.text_layers.size());
    std::string hint = "use the text encoder the model was made with";
    if (published)
      hint = fmt::format("get {}: `flux2 models install {}` brings it as text_encoder/", name, published->id);
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} needs {} (width {}); {} has width {} ({})", chosen.config().name(), name, wanted,
                            path.string(), width, what),
                hint);
  }

  void check_encoder(const Chosen& chosen, const Component& encoder) const {
    const std::vector<int>& states = files_.defaults.text_layers;
    if (encoder.qwen3->hidden * static_cast<int64_t>(states.size()) != chosen.config().text_width)
      refuse_width(chosen, encoder.path, encoder.qwen3->hidden, encoder.variant);
    if (encoder.qwen3->layers < states.back())
      fail(ErrorCode::Incompatible, "{} has {} layers; the state after layer {} is wanted", encoder.path.string(),
           encoder.qwen3->layers, states.back());
  }

  void find_text_encoder(const Chosen& chosen) {
    if (!query_.need_text_encoder) {
      files_.text_encoder = query_.text_encoder;
      return;
    }
    if (chosen.config().text_width == dev_config().text_width)
      throw Error(
          ErrorCode::Incompatible,
          fmt::format("{} reads its prompts with Mistral-Small-24B (width 5120), which this version does not run yet",
                      chosen.config().name()),
          "give text states made elsewhere with --embeddings FILE, or use a klein model");
    const char* variable = is_large(chosen) ? "QWEN3_8B_PATH" : "QWEN3_4B_PATH";
    if (const auto path = given(chosen, query_.text_encoder, "--text-encoder", variable, ComponentKind::TextEncoder,
                                chosen.registered ? chosen.registered->text_encoder : "")) {
      const Recognition r = recognise(*path, log_);
      if (const Component* found = r.find(ComponentKind::TextEncoder); found && found->family == "Mistral")
        refuse_width(chosen, *path, found->text_width, found->variant);
      check_encoder(chosen, require(r, ComponentKind::TextEncoder));
      files_.text_encoder = *path;
      return;
    }
    files_.text_encoder = search(chosen, ComponentKind::TextEncoder, "--text-encoder",
                                 [&](const Component& c, bool) { check_encoder(chosen, c); });
  }

  void find_tokenizer(const Chosen& chosen) {
    if (!query_.need_text_encoder) {
      files_.tokenizer = query_.tokenizer;
      return;
    }
    const char* variable = is_large(chosen) ? "QWEN3_8B_TOKENIZER_PATH" : "QWEN3_4B_TOKENIZER_PATH";
    if (const auto path = given(chosen, query_.tokenizer, "--tokenizer", variable, ComponentKind::Tokenizer,
                                chosen.registered ? chosen.registered->tokenizer : "")) {
      if (!holds_tokenizer(*path) && path->filename() != "tokenizer.json" && !holds_gguf_tokenizer(*path))
        fail(ErrorCode::Incompatible, "{} holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt",
             path->string());
      files_.tokenizer = *path;
      return;
    }
    // The encoder's own folder and its neighbours before other models'.
    std::vector<fs::path> found;
    for (const fs::path& root : {files_.text_encoder, files_.text_encoder.parent_path()})
      for (const fs::path& path : candidates_quietly(root, ComponentKind::Tokenizer)) found.push_back(path);
    const auto candidates = part_candidates(chosen, ComponentKind::Tokenizer);
    const auto add = [&](bool of_the_model) {
      for (const auto& [path, own] : candidates)
        if (own == of_the_model && is_there(path)) found.push_back(path);
    };
    add(true);
    if (holds_gguf_tokenizer(files_.text_encoder)) found.push_back(files_.text_encoder);
    add(false);
    if (found.empty()) refuse_missing(chosen, "tokenizer", "--tokenizer");
    files_.tokenizer = found[0];
    files_.reasons.push_back(fmt::format("tokenizer {}: found", found[0].string()));
  }

  const ModelQuery& query_;
  const Log& log_;
  Environment environment_;
  std::vector<fs::path> folders_;
  ModelFiles files_;
};

}  // namespace

ModelFiles locate_model(const ModelQuery& query, const Log& log) { return Locator(query, log).run(); }

}  // namespace flux2
