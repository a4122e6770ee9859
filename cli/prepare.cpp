#include "cli/prepare.h"

#include <optional>

#include "base/path_exists.h"
#include "cli/adapter_choice.h"
#include "cli/folders.h"
#include "cli/prompts.h"
#include "cli/quality.h"
#include "cli/styles.h"
#include "record/picture_metadata.h"
#include "app/wildcards.h"

namespace flux2 {

namespace {

// A record knows adapters by the names of their files: they lie beside the picture or where --lora looks for names.
Setting adapters_of_picture(const GenerationRecord& record, const std::string& picture) {
  Setting lora{{}, picture};
  for (const AdapterRecord& adapter : record.adapters) {
    if (adapter.name.empty())
      throw Error(ErrorCode::NotFound, picture + " was made with an adapter whose name it does not tell", "name it with --lora");
    const auto beside = std::filesystem::path(picture).parent_path() / (adapter.name + ".safetensors");
    lora.values.push_back(text_of({path_exists(beside) ? beside.string() : adapter.name, adapter.weight, adapter.layers}));
  }
  return lora;
}

// --from and --remix: the settings of a picture, below what the command line says.
void take_settings_of_picture(Invocation& run) {
  for (const char* option : {"from", "remix"}) {
    const Setting* file = run.settings.find(option);
    if (!file) continue;
    const std::string path = file->values.back();
    const auto found = find_record(read_metadata(path));
    if (!found)
      throw Error(ErrorCode::Incompatible, path + " does not say how it was made",
                  "flux2 inspect --raw shows what it says");
    SettingLayer layer = layer_of_record(found->record, option == std::string_view("from"), path);
    const bool has_sources = found->record.canvas || !found->record.references.empty();
    if (has_sources && !run.settings.has("input")) layer["input"] = {find_sources(found->record, path), path};
    const bool ours = found->record.app.starts_with(kProgramName);
    if (ours && !found->record.adapters.empty() && !run.settings.has("lora")) layer["lora"] = adapters_of_picture(found->record, path);
    run.settings.add_below(option, std::move(layer));
  }
}

std::optional<Wildcards> wildcards_of(const Invocation& run) {
  const std::string folder = run.settings.text("wildcards");
  if (folder == "off") return std::nullopt;
  if (!folder.empty()) return Wildcards({folder});
  const auto data = data_folder(run.environment);
  return data.empty() ? Wildcards({"wildcards"}) : Wildcards({"wildcards", data / "wildcards"});
}

// Choices in a prompt are made for each picture, by its seed: such a batch becomes requests of one picture.
void add_request(std::vector<ResolvedRequest>& requests, ResolvedRequest resolved, Wildcards* wildcards) {
  const Request& request = resolved.request;
  if (!wildcards || !(Wildcards::used_in(request.prompt) || Wildcards::used_in(request.negative))) {
    requests.push_back(std::move(resolved));
    return;
  }
  for (int k = 0; k < request.batch; ++k) {
    ResolvedRequest one = resolved;
    one.request.batch = 1;
    one.request.seed = one.record.seed = request.seed + static_cast<uint64_t>(k);
    one.request.prompt = one.record.prompt = wildcards->expand(request.prompt, one.request.seed);
    one.request.negative = one.record.negative = wildcards->expand(request.negative, one.request.seed);
    requests.push_back(std::move(one));
  }
}

// Adapters of a line stand beside those of the run; all else replaces it.
SettingLayer line_settings(const Invocation& run, const PromptLine& line) {
  SettingLayer own = line.settings;
  const Setting* all = run.settings.find("lora");
  if (const auto lora = own.find("lora"); all && lora != own.end())
    lora->second.values = adapters_beside(all->values, lora->second.values);
  return own;
}

std::vector<ResolvedRequest> resolve_all(Invocation& run, const ModelFiles& model,
                                         const std::vector<PromptLine>& prompts, Resolver resolve) {
  const auto repeat = run.settings.integer("repeat", 1, 100000).value_or(1);
  const std::string style = run.settings.text("style");
  const Styles styles = all_styles(run.project, run.user);
  PictureShelf shelf(run.console.log());
  std::optional<Wildcards> wildcards = wildcards_of(run);
  std::vector<ResolvedRequest> requests;
  for (int64_t round = 0; round < repeat; ++round)
    for (const PromptLine& line : prompts) {
      const std::string prompt = style.empty() ? line.prompt : apply_style(styles, style, line.prompt);
      Settings settings = run.settings.with(line_settings(run, line));
      if (round > 0) settings = settings.with({{"seed", {{"random"}, "--repeat"}}});
      // Rounding and the like are the same in every round; once is enough to say so.
      ResolvedRequest resolved = resolve(settings, model, prompt, round == 0 ? run.console.log() : Log{}, &shelf);
      resolved.adapters = adapter_choices(settings, run);
      add_request(requests, std::move(resolved), wildcards && !line.literal ? &*wildcards : nullptr);
    }
  return requests;
}

// <lora:NAME:W> in a prompt asks for the same as --lora on its line.
void take_lora_tags(std::vector<PromptLine>& prompts) {
  for (PromptLine& line : prompts) {
    std::vector<std::string> found;
    line.prompt = without_lora_tags(line.prompt, found);
    if (found.empty()) continue;
    Setting& own = line.settings.try_emplace("lora", Setting{{}, "<lora:…>"}).first->second;
    own.values.insert(own.values.end(), found.begin(), found.end());
  }
}

}  // namespace

PreparedRun prepare_run(Invocation& run, FoundModels* found, Resolver resolve) {
  take_settings_of_picture(run);
  const bool given_text = run.settings.has("embeddings");
  std::vector<PromptLine> prompts = read_prompts(run, given_text);
  take_lora_tags(prompts);
  ModelFiles model = choose_model(run, !given_text, found);
  for (const std::string& reason : model.reasons) run.console.log().info("{}", reason);
  if (run.settings.has("preset")) {
    const std::string preset = run.settings.choice("preset", {"draft", "standard", "best"}, "standard");
    run.settings.add_below("preset", quality_preset(preset, model));
  }
  std::vector<ResolvedRequest> requests = resolve_all(run, model, prompts, resolve);
  return {std::move(model), std::move(requests)};
}

}  // namespace flux2
