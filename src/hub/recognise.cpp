#include "hub/recognise.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "hub/folder_layout.h"
#include "hub/quantisation.h"
#include "hub/recognise_parts.h"
#include "hub/training_kind.h"
#include "weights/gguf_file.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// What a file is, by its first bytes, if it cannot contain weights; otherwise empty.
struct Sniffed {
  Recognition::Kind kind = Recognition::Kind::Unknown;
  std::string container, note;
};

Sniffed sniff(const fs::path& path) {
  const auto file = MappedFile::open(path);
  const auto first = file->bytes().first(std::min<size_t>(16, file->bytes().size()));
  const std::string head(reinterpret_cast<const char*>(first.data()), first.size());
  using Kind = Recognition::Kind;
  // The length at the start of a safetensors file may look like another format: 1152 looks like a pickle.
  if (head.size() > 8 && head.compare(4, 5, std::string_view("\0\0\0\0{", 5)) == 0) return {};
  if (head.starts_with("PK\x03\x04") || head.starts_with("\x80\x02") || head.starts_with("\x80\x04"))
    return {Kind::Unknown, "pickle",
            "PyTorch pickles can run code and are not read; safetensors and GGUF files are. The .pth of an upscaler can be "
            "converted"};
  if (head.starts_with("\x89PNG")) return {Kind::Image, "PNG", ""};
  if (head.starts_with("\xff\xd8\xff")) return {Kind::Image, "JPEG", ""};
  if (head.starts_with("RIFF") && head.size() >= 12 && head.substr(8, 4) == "WEBP") return {Kind::Image, "WebP", ""};
  return {};
}

// Counts the tensors with the component's prefix; without a prefix, those that match no prefix of another component.
void measure(Component& c, const WeightSource& source, const std::vector<Component>& all) {
  for (const StoredTensor& t : source.tensors()) {
    const bool taken = c.prefix.empty() && std::any_of(all.begin(), all.end(), [&](const Component& other) {
                         return !other.prefix.empty() && t.name.starts_with(other.prefix);
                       });
    if (taken || !t.name.starts_with(c.prefix)) continue;
    ++c.tensors;
    c.parameters += t.shape.numel();
    c.bytes += t.bytes.size();
  }
}

std::vector<Component> components_of(const SharedSource& source) {
  if (auto foreign = recognise_foreign_quantisation(*source)) return {std::move(*foreign)};
  if (auto upscaler = recognise_upscaler(*source)) return {std::move(*upscaler)};
  if (auto classifier = recognise_classifier(*source)) return {std::move(*classifier)};
  if (auto encoder = recognise_image_encoder(*source)) return {std::move(*encoder)};
  if (auto prompt = recognise_image_prompt(*source)) return {std::move(*prompt)};
  std::vector<Component> found;
  const auto add = [&](std::optional<Component> c) {
    if (c) found.push_back(std::move(*c));
    return c.has_value();
  };
  std::optional<Component> adapter = recognise_adapter(source);
  if (!add(recognise_transformer(source)) && !adapter) add(recognise_foreign_model(*source));
  if (adapter) {
    if (!found.empty()) {
      found[0].flux2.reset();
      found[0].problem = "the file holds a whole model and an adapter's matrices beside it";
      found[0].hint = "use the model and the adapter as two files";
    } else {
      add(std::move(adapter));
    }
  } else {
    add(recognise_autoencoder(source));
    add(recognise_text_encoder(source));
  }
  return found;
}

void decide_training(Component& c, const Recognition& r) {
  if (!c.flux2 || c.flux2->guidance) return;
  const auto index = model_index_near(c.path);
  const TrainingKind kind = training_kind({.model_index = index ? &*index : nullptr, .metadata = r.metadata, .path = c.path});
  c.distilled = kind.distilled;
  c.kv = kind.kv;
  c.distilled_reason = kind.reason;
  c.distilled_assumed = kind.assumed;
  c.evidence.push_back(fmt::format("{}: {}", kind.distilled ? "distilled" : "base", kind.reason));
}

Recognition recognise_weights(const fs::path& path, const Log& log) {
  Recognition r{.kind = Recognition::Kind::Weights, .path = path, .container = is_gguf(path) ? "GGUF" : "safetensors"};
  const SharedSource source = open_weights(path, log);
  r.metadata = source->metadata();
  r.components = components_of(source);
  if (r.components.empty()) {
    Component unknown{.evidence = {fmt::format("first tensor: {}", source->tensors()[0].name)}};
    unknown.problem = "the tensors belong to no model this program knows";
    unknown.storage = quantisation_label(*source, "");
    r.components.push_back(std::move(unknown));
  }
  for (Component& c : r.components) {
    c.path = path;
    measure(c, *source, r.components);
    decide_training(c, r);
  }
  return r;
}

Component tokenizer_component(const fs::path& folder) {
  return {.kind = ComponentKind::Tokenizer, .path = folder, .evidence = {"tokenizer files in " + folder.filename().string()}};
}

Recognition recognise_folder(const fs::path& folder, const Log& log) {
  Recognition r{.path = folder};
  std::vector<fs::path> parts;
  for (const char* name : {"transformer", "vae", "text_encoder"})
    if (holds_weights(folder / name)) parts.push_back(folder / name);
  const auto index = model_index_of(folder);
  if (!index && parts.empty() && holds_weights(folder)) {
    if (weight_files_in(folder).size() == 1 || has_weight_index(folder)) {
      r = recognise_weights(folder, log);
      if (holds_tokenizer(folder)) r.components.push_back(tokenizer_component(folder));
      return r;
    }
  }
  for (const fs::path& file : weight_files_in(folder)) parts.push_back(file);
  for (const fs::path& part : parts) {
    const Recognition inner = recognise(part, log);
    r.components.insert(r.components.end(), inner.components.begin(), inner.components.end());
  }
  for (const fs::path& candidate : {folder / "tokenizer", folder})
    if (holds_tokenizer(candidate)) {
      r.components.push_back(tokenizer_component(candidate));
      break;
    }
  if (index) r.evidence.push_back("model_index.json");
  r.container = index && index->contains("_class_name") ? "diffusers folder" : "folder";
  const bool only_tokenizer = r.components.size() == 1 && r.components[0].kind == ComponentKind::Tokenizer;
  r.kind = only_tokenizer ? Recognition::Kind::Tokenizer : Recognition::Kind::Pipeline;
  if (r.components.empty()) r.kind = Recognition::Kind::Unknown;
  return r;
}

}  // namespace

const char* name_of(ComponentKind kind) {
  switch (kind) {
    case ComponentKind::Transformer: return "transformer";
    case ComponentKind::Autoencoder: return "autoencoder";
    case ComponentKind::TextEncoder: return "text encoder";
    case ComponentKind::Adapter: return "adapter";
    case ComponentKind::Tokenizer: return "tokenizer";
    case ComponentKind::Upscaler: return "upscaler";
    case ComponentKind::Classifier: return "classifier";
    case ComponentKind::ImageEncoder: return "image encoder";
    case ComponentKind::ImagePrompt: return "image-prompt adapter";
    case ComponentKind::Unknown: return "unknown";
  }
  return "";
}

const char* name_of(Recognition::Kind kind) {
  switch (kind) {
    case Recognition::Kind::Weights: return "weights";
    case Recognition::Kind::Pipeline: return "model folder";
    case Recognition::Kind::Tokenizer: return "tokenizer";
    case Recognition::Kind::Image: return "image";
    case Recognition::Kind::Unknown: return "unknown";
  }
  return "";
}

const Component* Recognition::find(ComponentKind wanted) const {
  const Component* found = nullptr;
  for (const Component& c : components)
    if (c.kind == wanted && (!found || (!found->usable() && c.usable()))) found = &c;
  return found;
}

Recognition recognise(const fs::path& path, const Log& log) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) fail(ErrorCode::NotFound, "{} does not exist", path.string());
  if (fs::is_directory(path, ignored)) return recognise_folder(path, log);
  if (path.filename() == "tokenizer.json")
    return {.kind = Recognition::Kind::Tokenizer, .path = path, .container = "JSON", .components = {tokenizer_component(path)}};
  if (const Sniffed s = sniff(path); !s.container.empty()) {
    Recognition r{.kind = s.kind, .path = path, .container = s.container};
    if (!s.note.empty()) r.components.push_back({.path = path, .problem = s.note});
    return r;
  }
  return recognise_weights(path, log);
}

const Component& required_part(const Recognition& r, ComponentKind wanted) {
  const Component* found = r.find(wanted);
  if (found && found->usable()) return *found;
  if (!found)
    for (const Component& c : r.components)
      if (!c.usable()) found = &c;
  if (found) {
    std::string text = found->problem;
    // Messages about a model folder name the file already.
    if (!text.starts_with(r.path.string())) text = fmt::format("{}: {}", r.path.string(), text);
    throw Error(ErrorCode::Incompatible, text, found->hint);
  }
  std::string what = name_of(r.kind);
  for (const Component& c : r.components) what = fmt::format("{} {}", c.family, name_of(c.kind));
  const auto with_article = [](std::string_view noun) {
    return fmt::format("{} {}", std::string_view("aeiou").find(noun[0]) != std::string_view::npos ? "an" : "a", noun);
  };
  throw Error(ErrorCode::Incompatible,
              fmt::format("{} is {}, not {}", r.path.string(), with_article(what), with_article(name_of(wanted))),
              Hint("{0} shows what a file is", {run_command("inspect FILE")}));
}

}  // namespace flux2
