#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <type_traits>

#include "base/error.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "hub/folder_layout.h"
#include "hub/locate_parts.h"
#include "hub/model_files.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxLayer = 1000;
constexpr size_t kMaxStates = 64;
constexpr size_t kMaxSystemMessage = 8192;

std::vector<int> layer_list(const Json& value, const std::string& where) {
  std::vector<int> layers;
  if (value.is_array() && value.size() <= kMaxStates)
    for (const Json& item : value) {
      const int64_t layer = item.is_number_integer() ? item.get<int64_t>() : 0;
      if (layer > (layers.empty() ? 0 : layers.back()) && layer < kMaxLayer) layers.push_back(static_cast<int>(layer));
    }
  if (layers.empty() || layers.size() != value.size())
    fail(ErrorCode::BadFile, "{}: text_layers must be a list of ascending layer numbers", where);
  return layers;
}

// Reads from a model_index.json what the tensors do not show: the name of the model and, in its section "flux2", steps, guidance,
// width, height, text_length, text_layers and system_message. Missing keys keep their defaults; `path` is for messages.
void apply_model_index(const Json& index, const std::filesystem::path& path, ModelFiles& files) {
  const std::string where = path.string();
  const auto name = index.find("name");
  if (name != index.end() && name->is_string() && !name->get<std::string>().empty()) files.id = name->get<std::string>();

  const auto section = index.find("flux2");
  if (section == index.end()) return;
  if (!section->is_object()) fail(ErrorCode::BadFile, "{}: flux2 must be an object", where);
  const auto number = [&](const char* key, auto& target, double low, double high) {
    const auto value = section->find(key);
    if (value == section->end()) return;
    if (!value->is_number() || value->get<double>() < low || value->get<double>() > high)
      fail(ErrorCode::BadFile, "{}: {} must be a number from {} to {}", where, key, low, high);
    target = value->get<std::decay_t<decltype(target)>>();
  };
  ModelDefaults& d = files.defaults;
  number("steps", d.steps, 1, 1000);
  number("guidance", d.guidance, 0, 100);
  number("width", d.width, 16, 16384);
  number("height", d.height, 16, 16384);
  number("text_length", d.text_length, 1, 65536);
  const auto layers = section->find("text_layers");
  if (layers != section->end()) d.text_layers = layer_list(*layers, where);
  const auto system = section->find("system_message");
  if (system == section->end()) return;
  if (!system->is_string() || system->get<std::string>().size() > kMaxSystemMessage)
    fail(ErrorCode::BadFile, "{}: system_message must be a text of at most {} bytes", where, kMaxSystemMessage);
  d.system_message = system->get<std::string>();
}

fs::path whole(const fs::path& path) { return fs::absolute(path).lexically_normal(); }

class Locator {
 public:
  Locator(const ModelQuery& query, const Log& log)
      : query_(query), log_(log), environment_(query.environment), folders_(query.folders) {
    if (const auto folder = environment_.path("FLUX_WEIGHTS_PATH")) folders_.insert(folders_.begin(), *folder);
  }

  ModelFiles run() {
    const ChosenModel chosen = choose();
    files_.transformer = chosen.component.path;
    files_.bundled = chosen.bundled;
    files_.distilled = chosen.training.distilled;
    describe(chosen);
    find_parts(chosen, query_, folders_, files_, log_);
    return std::move(files_);
  }

 private:
  // ---- which transformer ----

  ChosenModel choose() {
    if (!query_.transformer.empty()) {
      if (!path_exists(query_.transformer)) {
        if (const auto* part = query_.registered.find(query_.transformer.string(), ComponentKind::Transformer))
          return open_registered(*part);
      }
      const bool in_folder = !query_.model.empty() && is_folder(query_.model);
      ChosenModel chosen =
          open(query_.transformer, in_folder ? fs::path(query_.model) : model_root(query_.transformer), "named in the request");
      if (!query_.model.empty() && !in_folder) take_rest_from(query_.model, chosen);
      return with_parts_of_bundled(std::move(chosen));
    }
    if (!query_.model.empty()) return with_parts_of_bundled(choose_named(query_.model));
    if (const auto variable = environment_.first_model()) return open_variable(*variable);
    const std::vector<ChosenModel> installed = installed_models();
    if (installed.size() == 1) return installed[0];
    const bool has_bundled = !query_.bundled.empty() && path_exists(query_.bundled);
    if (installed.size() > 1 && !has_bundled) refuse_several(installed);
    if (installed.size() > 1)
      log_.warn(
          "several models are installed ({}) and none is chosen: using the bundled one. You can choose one, or set "
          "generate.model in the configuration",
          fmt::join(names_of(installed), ", "));
    if (has_bundled) return open_bundled(query_.bundled);
    throw Error(
        ErrorCode::NotFound, fmt::format("no model is installed; searched {}", joined(folders_)),
        Hint("install one with {0}, or give a file or folder with {1}", {install_command(kDefaultInstall), set_option("model")}));
  }

  // A transformer file together with a model name: the name determines the defaults and the other parts.
  void take_rest_from(const std::string& name, ChosenModel& chosen) {
    const auto variant = find_variant(name);
    if (variant && variant->config == chosen.config()) {
      if (!query_.base) chosen.training = {variant->distilled, variant->kv, "named " + variant->id};
      return;
    }
    std::optional<ChosenModel> named;
    if (!variant) named = choose_named(name);
    if (!named || named->config() != chosen.config())
      throw Error(
          ErrorCode::Incompatible,
          fmt::format("{} is {}, but the requested model is {}", chosen.component.path.string(), chosen.config().name(), name),
          Hint("use only one of {0} and {1}", {set_option("model"), set_option("dit")}));
    chosen.root = named->root;
    chosen.index = named->index;
    chosen.training = named->training;
    chosen.registered = named->registered;
  }

  // A file that was converted from the bundled model has its geometry and runs with its parts.
  ChosenModel with_parts_of_bundled(ChosenModel chosen) {
    const bool has_parts = !chosen.index.empty() || (chosen.registered && !chosen.registered->vae.empty());
    if (chosen.bundled || has_parts || query_.bundled.empty() || !path_exists(query_.bundled)) return chosen;
    if (published_like(chosen.config())) return chosen;
    const size_t reasons = files_.reasons.size();
    try {
      const std::vector<fs::path> folders = bundled_folders();
      // Where nothing says which of them a file comes from, it is taken for the one that lends its parts.
      for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
        const ChosenModel bundled = open_bundled(*folder);
        if (bundled.config() != chosen.config()) continue;
        if (!chosen.training.assumed && bundled.training.distilled != chosen.training.distilled) continue;
        chosen.root = bundled.root, chosen.index = bundled.index, chosen.training = bundled.training;
        break;
      }
    } catch (const Error& e) {
      log_.debug("{}", e.what());  // a damaged bundled model must not prevent the use of others
    }
    files_.reasons.resize(reasons);
    return chosen;
  }

  ChosenModel open_path(const fs::path& path) {
    return is_folder(path) ? open_folder(path) : open(path, model_root(path), "named in the request");
  }

  ChosenModel choose_named(const std::string& name) {
    const auto variant = find_variant(name);
    if (query_.names_only && !variant && !is_plain_name(name))
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("the model \"{}\" is not a name. Only a person may choose a model by its path", printable(name)),
                  Hint("give the path with {0}", {set_option("model", "PATH")}));
    if (!query_.names_only && path_exists(name)) return open_path(name);
    if (const auto* variable = variant ? environment_.model_of(variant->id) : nullptr) return open_variable(*variable);
    // An exact name wins over the beginning of a longer one: pico is the bundled model even if pico-q4 is registered.
    if (const auto* part = query_.registered.find_exact(name, ComponentKind::Transformer)) return open_registered(*part);
    for (const fs::path& folder : bundled_folders())
      if (is_name_of(folder, name)) return open_bundled(folder);
    if (const auto* part = query_.registered.find(name, ComponentKind::Transformer)) return open_registered(*part);
    if (variant) return choose_variant(*variant);
    for (const fs::path& folder : folders_)
      if (fs::path(name).is_relative() && path_exists(folder / name)) return open_path(folder / name);
    if (name.find('/') != std::string::npos || name.ends_with(".safetensors") || name.ends_with(".gguf"))
      fail(ErrorCode::NotFound, "{} does not exist", name);
    std::vector<std::string> known = query_.registered.names(ComponentKind::Transformer);
    for (const Variant& v : variants())
      if (std::find(known.begin(), known.end(), v.id) == known.end()) known.push_back(v.id);
    std::vector<std::string> near = closest_variants(name);
    if (!query_.registered.of(ComponentKind::Transformer).empty()) near = nearest_words(name, known, 3);
    throw Error(ErrorCode::NotFound, fmt::format("unknown model {}", name),
                fmt::format("the closest known ids are {}; you can also give a file or folder", fmt::join(near, ", ")));
  }

  ChosenModel choose_variant(const Variant& wanted) {
    for (const ChosenModel& c : installed_models(&wanted))
      if (c.config() == wanted.config && (wanted.config.guidance || c.is_trained_like(wanted))) return c;
    throw Error(ErrorCode::NotFound, fmt::format("{} is not installed; searched {}", wanted.id, joined(folders_)),
                Hint("install it with {0}", {install_command(wanted.id)}));
  }

  // Every transformer that is registered or found in the folders; a folder that describes one model counts once. Folders
  // with the name of the requested variant come first.
  std::vector<ChosenModel> installed_models(const Variant* wanted = nullptr) {
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
    std::vector<ChosenModel> found;
    std::set<fs::path> seen;
    for (const RegisteredPart* part : query_.registered.of(ComponentKind::Transformer)) {
      seen.insert(whole(part->path));
      try {
        found.push_back(chosen_from(recognise(part->path, log_), model_root(part->path), part));
      } catch (const Error& e) {
        if (e.code() == ErrorCode::OutOfMemory) throw;  // this says nothing about the file
        log_.debug("{}", e.what());
      }
    }
    for (const fs::path& root : roots) {
      for (const fs::path& path : candidates_quietly(root, ComponentKind::Transformer, log_)) {
        if (!seen.insert(whole(path)).second) continue;
        try {
          found.push_back(chosen_from(recognise(path, log_), model_root(path)));
        } catch (const Error& e) {
          if (e.code() == ErrorCode::OutOfMemory) throw;  // this says nothing about the file
          log_.debug("{}", e.what());
          continue;
        }
        if (path_exists(root / "model_index.json")) break;
      }
    }
    return found;
  }

  static std::vector<std::string> names_of(const std::vector<ChosenModel>& models) {
    std::vector<std::string> names;
    for (const ChosenModel& c : models) names.push_back(c.registered ? c.registered->name : c.component.path.string());
    return names;
  }

  [[noreturn]] void refuse_several(const std::vector<ChosenModel>& installed) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("several models are installed: {}", fmt::join(names_of(installed), ", ")),
                Hint("choose one with {0}", {set_option("model")}));
  }

  // ---- opening candidates ----

  ChosenModel chosen_from(const Recognition& r, const fs::path& root, const RegisteredPart* registered = nullptr) const {
    ChosenModel chosen{.component = required_part(r, ComponentKind::Transformer), .root = root, .registered = registered};
    const auto index = model_index_of(root);
    if (index) chosen.index = *index;
    chosen.training = training_kind(
        {.base = query_.base, .model_index = index ? &*index : nullptr, .metadata = r.metadata, .path = chosen.component.path});
    if (!query_.base && registered && registered->distilled)
      chosen.training = {*registered->distilled, registered->kv, "the registry says so"};
    chosen.training.kv = chosen.training.kv && chosen.config() == klein_9b_config();
    return chosen;
  }

  ChosenModel open(const fs::path& path, const fs::path& root, const std::string& why) {
    ChosenModel chosen = chosen_from(recognise(path, log_), root);
    files_.reasons.push_back(fmt::format("transformer {}: {}", path.string(), why));
    return chosen;
  }

  ChosenModel open_registered(const RegisteredPart& part) {
    const fs::path path = path_of(part);
    files_.reasons.push_back(fmt::format("transformer {}: registered as {}", path.string(), part.name));
    return chosen_from(recognise(path, log_), model_root(path), &part);
  }

  ChosenModel open_folder(const fs::path& folder) {
    std::vector<ChosenModel> found;
    std::optional<Error> refusal;
    const bool one_model = model_index_of(folder).has_value();
    for (const fs::path& path : candidates_in(folder, ComponentKind::Transformer)) {
      try {
        const Recognition r = recognise(path, log_);
        if (!r.find(ComponentKind::Transformer)) continue;
        found.push_back(chosen_from(r, folder));
        if (one_model) break;
      } catch (const Error& e) {
        if (e.code() == ErrorCode::OutOfMemory) throw;  // this says nothing about the file
        if (!refusal) refusal = e;
      }
    }
    if (found.size() > 1) refuse_several(found);
    if (found.empty() && refusal) throw *refusal;
    if (found.empty() && !path_exists(folder)) fail(ErrorCode::NotFound, "{} does not exist", folder.string());
    if (found.empty())
      throw Error(ErrorCode::NotFound, fmt::format("folder {} contains no FLUX.2 transformer", folder.string()),
                  Hint("install one with {0}", {install_command(kDefaultInstall)}));
    files_.reasons.push_back(fmt::format("transformer {}: found in {}", found[0].component.path.string(), folder.string()));
    return found[0];
  }

  ChosenModel open_variable(const ModelVariable& variable) {
    const fs::path path = *environment_.path(variable.name);
    ChosenModel chosen = open(path, model_root(path), fmt::format("named by {}", variable.name));
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

  ChosenModel open_bundled(const fs::path& folder) {
    ChosenModel chosen = in_context("the bundled model", [&] { return open_folder(folder); });
    chosen.bundled = true;
    return chosen;
  }

  // The bundled model, and the one beside it that lends it its parts.
  std::vector<fs::path> bundled_folders() const {
    if (query_.bundled.empty() || !path_exists(query_.bundled)) return {};
    std::vector<fs::path> folders = {query_.bundled};
    if (const auto lender = lender_of(query_.bundled); lender && path_exists(*lender)) folders.push_back(*lender);
    return folders;
  }

  static bool is_name_of(const fs::path& folder, const std::string& name) {
    const auto index = model_index_of(folder);
    return name == folder.filename() || (index && index->value("name", Json()) == name);
  }

  // ---- what it is and how it runs ----

  void describe(const ChosenModel& chosen) {
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
      files_.reasons.push_back(fmt::format("{}: {}", chosen.training.distilled ? "distilled" : "base", chosen.training.reason));
      if (chosen.training.assumed) {
        const std::string taken = fmt::format("{} is taken for a distilled model: {} steps, guidance {}",
                                              chosen.component.path.string(), files_.defaults.steps, files_.defaults.guidance);
        if (chosen.training.named_klein) log_.info("{}; it can be run as a base model instead", taken);
        else log_.warn("{}. Neither its name nor its metadata says so; the setting base runs it as a base model", taken);
      }
    }
    apply_model_index(chosen.index, chosen.root / "model_index.json", files_);
    (void)lender_of(chosen.root);  // a wrong name is an error: the search for parts ignores damaged descriptions
    if (chosen.registered) apply_preferences(*chosen.registered);
  }

  void apply_preferences(const RegisteredPart& part) {
    ModelDefaults& d = files_.defaults;
    if (part.steps) d.steps = static_cast<int>(*part.steps);
    if (part.width) d.width = static_cast<int>(*part.width);
    if (part.height) d.height = static_cast<int>(*part.height);
    if (part.guidance && d.guidance_kind != ModelDefaults::None) d.guidance = *part.guidance;
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
