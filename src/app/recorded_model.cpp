#include "app/recorded_model.h"

#include <fmt/format.h>

#include <optional>

#include "app/model_choice.h"
#include "app/registry_access.h"
#include "base/error.h"
#include "base/file_hash.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

class Search {
 public:
  Search(const GenerationRecord& record, const std::string& image, const AppContext& context, const RequestSpec& configured)
      : record_(record), image_(image), context_(context), registry_(look_into_registry(context)) {
    context_.log = {};  // what is looked at and not used is nobody's concern
    configured_.model = configured.model, configured_.dit = configured.dit;
    if (configured.names_only.contains("model")) configured_.names_only.insert("model");
  }

  RecordedModel run() {
    const auto configured = configured_model();
    if (configured && has_recorded_hash(configured->transformer)) return {};
    if (const auto registered = registered_file()) return {*registered, ""};
    if (configured && is_named_alike(*configured)) return {};
    const std::string& id = record_.model;
    const auto named = located(id);
    if (named && (id.empty() ? has_recorded_hash(*named) : !has_other_hash(*named))) return {id, ""};
    if (const auto beside = file_by_name()) return {*beside, "", true};
    if (id.empty() && record_.model_sha256.empty()) return {};
    if (!named || id.empty())
      return {"", fmt::format("{} was made with {}, which is not installed", image_, id.empty() ? "a model" : "the model " + id)};
    return {id, fmt::format("{} was made with another file of {}: its sha256 begins with {}, that of {} with {}", image_, id,
                            record_.model_sha256.substr(0, 10), named->string(), hash_of(*named).substr(0, 10))};
  }

 private:
  // Empty when it is a large file whose hash nobody computed.
  std::string hash_of(const fs::path& file) const {
    if (registry_)
      if (const auto known = registry_->known_hash(file)) return *known;
    if (!is_file(file)) return "";
    return remembered_hash(file, data_path(context_.environment, "cache/hashes.json"));
  }
  bool has_recorded_hash(const fs::path& file) const {
    return !record_.model_sha256.empty() && hash_of(file) == record_.model_sha256;
  }
  bool has_other_hash(const fs::path& file) const {
    if (record_.model_sha256.empty()) return false;
    const std::string hash = hash_of(file);
    return !hash.empty() && hash != record_.model_sha256;
  }

  std::optional<std::string> registered_file() const {
    if (!registry_ || record_.model_sha256.empty()) return std::nullopt;
    for (const ModelRecord& r : registry_->all())
      if (component_kind(r.type) == ComponentKind::Transformer && r.state != ModelState::Unsupported && is_file(r.path) &&
          has_recorded_hash(r.path))
        return r.key;
    return std::nullopt;
  }

  bool is_named_alike(const ModelFiles& files) const {
    const bool is_named_file = record_.model_file.empty() || files.transformer.filename() == record_.model_file;
    return files.id == record_.model && is_named_file && !has_other_hash(files.transformer);
  }

  std::optional<ModelFiles> chosen_by(RequestSpec spec) const {
    spec.embeddings = "";  // a text encoder that is missing is another matter
    try {
      return choose_model(spec, context_);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  std::optional<ModelFiles> configured_model() const {
    return configured_.model || configured_.dit ? chosen_by(configured_) : std::nullopt;
  }

  // The transformer of the model with that name; of the default model when it is empty.
  std::optional<fs::path> located(const std::string& name) const {
    RequestSpec spec;
    if (!name.empty()) spec.model = name, spec.names_only.insert("model");
    const auto found = chosen_by(std::move(spec));
    return found ? std::optional(found->transformer) : std::nullopt;
  }

  std::optional<std::string> file_by_name() const {
    const bool is_model = record_.model_file.ends_with(".safetensors") || record_.model_file.ends_with(".gguf");
    if (!is_plain_name(record_.model_file) || !is_model) return std::nullopt;
    for (const fs::path& folder : {fs::path(image_).parent_path(), fs::path()})
      if (const fs::path file = folder / record_.model_file; is_file(file) && !has_other_hash(file))
        return fs::absolute(file).string();
    return std::nullopt;
  }

  const GenerationRecord& record_;
  const std::string& image_;
  AppContext context_;
  std::optional<Registry> registry_;
  RequestSpec configured_;
};

}  // namespace

void RecordedModel::set(RequestSpec& spec) const {
  if (is_base && (!name.empty() || problem.empty())) spec.base = true;
  if (name.empty()) return;
  spec.model = name;
  if (!is_file) spec.names_only.insert("model");
}

RecordedModel find_recorded_model(const GenerationRecord& record, const std::string& image, const AppContext& context,
                                  const RequestSpec& configured) {
  RecordedModel found = Search(record, image, context, configured).run();
  found.is_base = record.request.base.value_or(false);
  return found;
}

}  // namespace flux2
