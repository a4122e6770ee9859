#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "app/context.h"
#include "app/registry_access.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "hub/registry/check_record.h"
#include "hub/registry/scan.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

struct Entry {
  ModelRecord record;
  bool registered = true, bundled = false;
};

bool contains(std::string text, std::string part) {
  for (std::string* s : {&text, &part})
    for (char& c : *s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text.find(part) != std::string::npos;
}

struct Filter {
  std::string type, variant, format, text;

  explicit Filter(const Invocation& run)
      : type(run.settings.text("type")),
        variant(run.settings.text("variant")),
        format(run.settings.text("format")),
        text(run.positional.empty() ? "" : run.positional[0]) {
    check(type.empty() || model_type_named(type).has_value(),
          "--type: \"{}\" is not one of main, vae, text_encoder, tokenizer, lora, upscaler, tiny_vae, classifier, "
          "image_encoder, image_prompt",
          type);
    run.settings.choice("format", {"safetensors", "gguf", "sharded", "diffusers"}, "safetensors");
    check(run.positional.size() <= 1, "one text to look for is enough; put it in quotes if it has spaces");
  }
  bool takes(const ModelRecord& r) const {
    return (type.empty() || type == name_of(r.type)) && (format.empty() || contains(r.format, format)) &&
           (variant.empty() || contains(variant_text(r), variant)) &&
           (text.empty() || contains(r.name, text) || contains(variant_text(r), text) || contains(r.path.string(), text));
  }
};

// What is registered, then what merely lies in the model folders, then the model that came with the program.
std::vector<Entry> entries(Invocation& run) {
  std::vector<Entry> list;
  std::set<std::pair<ModelType, fs::path>> known;
  if (const auto registry = look_into_registry(run))
    for (ModelRecord& r : registry->all()) {
      const QuickCheck check = quick_check(r);
      r.state = check.state, r.note = check.note;
      known.emplace(r.type, real_place(r.path));
      list.push_back({std::move(r)});
    }
  const auto add = [&](const fs::path& folder, bool bundled) {
    std::error_code unreadable;
    if (!fs::is_directory(folder, unreadable)) return;
    for (Described& part : scan_folder(folder, {}, run.console.log()))
      if (known.emplace(part.record.type, real_place(part.record.path)).second && (!bundled || part.type == "main"))
        list.push_back({std::move(part.record), false, bundled});
  };
  for (const fs::path& folder : model_folders(run)) add(folder, false);
  for (const fs::path& folder : bundled_models(run.environment)) add(folder, true);
  return list;
}

}  // namespace

int run_models_list(Invocation& run) {
  const Filter filter(run);
  std::vector<Entry> list = entries(run);
  std::erase_if(list, [&](const Entry& e) { return !filter.takes(e.record); });
  if (run.settings.flag("names")) {
    std::set<std::string> names;
    for (const Entry& e : list)
      if (e.registered || e.bundled) names.insert(e.record.name);
    for (const std::string& name : names) run.console.result(name);
    return 0;
  }
  if (run.console.json()) {
    Json json = Json::array();
    for (const Entry& e : list) {
      Json one = to_json(e.record);
      one["registered"] = e.registered;
      one["bundled"] = e.bundled;
      json.push_back(std::move(one));
    }
    run.console.result(pretty(json));
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"NAME", "TYPE", "VARIANT", "QUANT", "SIZE", "STATE", "KEY"}};
  size_t unregistered = 0;
  for (const Entry& e : list) {
    const ModelRecord& r = e.record;
    const bool loose = !e.registered && !e.bundled;
    unregistered += loose;
    rows.push_back({e.bundled ? r.name + " (bundled)"
                    : loose   ? r.path.string()
                              : r.name,
                    name_of(r.type), variant_text(r), r.quant, byte_text(r.bytes), name_of(r.state), e.registered ? r.key : "-"});
  }
  if (!list.empty()) run.console.result(text_table(rows));
  else run.console.note("no model was found");
  for (const Entry& e : list)
    if (e.record.state != ModelState::Ready && !e.record.note.empty())
      run.console.note(fmt::format("{}: {}", e.registered ? e.record.name : e.record.path.string(), e.record.note));
  if (unregistered > 0 && registry_available())
    run.console.note(
        fmt::format("{} without a key lie in the model folders; `flux2 models scan --add` gives them names", unregistered));
  for (const fs::path& folder : model_folders(run)) run.console.note("searched " + folder.string());
  return 0;
}

}  // namespace flux2
