#include "app/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/adapter_references.h"
#include "app/adapters.h"
#include "app/presets.h"
#include "app/recorded_model.h"
#include "app/request_limits.h"
#include "app/resolve_image_prompts.h"
#include "app/resolve_regions.h"
#include "app/wildcards.h"
#include "base/error.h"
#include "base/file_hash.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "hub/adapter_tools.h"
#include "hub/recognise.h"
#include "pipeline/regions.h"
#include "record/picture_metadata.h"
#include "text/prompt.h"

namespace flux2 {

namespace {

std::optional<Wildcards> wildcards_of(const RequestSpec& spec, const AppContext& context) {
  const std::string folder = spec.wildcards.value_or("");
  if (folder == "off") return std::nullopt;
  if (!folder.empty()) return Wildcards({folder}, context.limits.text);
  const auto data = data_path(context.environment, "wildcards");
  std::vector<std::filesystem::path> folders = {"wildcards"};
  if (!data.empty()) folders.push_back(data);
  return Wildcards(std::move(folders), context.limits.text);
}

bool uses_wildcards(const Request& request) {
  const auto in_region = [](const Region& region) { return Wildcards::used_in(region.prompt); };
  return Wildcards::used_in(request.prompt) || Wildcards::used_in(request.negative) ||
         std::any_of(request.regions.begin(), request.regions.end(), in_region);
}

// Wildcards are expanded for each image, by its seed: such a batch becomes requests of one image.
void add_request(std::vector<ResolvedRequest>& requests, ResolvedRequest resolved, Wildcards* wildcards, const Limits& limits) {
  const Request& request = resolved.request;
  if (!wildcards || !uses_wildcards(request)) {
    requests.push_back(std::move(resolved));
    return;
  }
  for (int k = 0; k < request.batch; ++k) {
    ResolvedRequest one = resolved;
    RequestSpec& recorded = one.record.request;
    one.request.batch = 1;
    const auto [seed, variation] = request.seed_of_image(k);
    one.request.seed = seed;
    one.request.variation = variation;
    const uint64_t draw = request.seed + static_cast<uint64_t>(k);
    one.request.prompt = wildcards->expand(request.prompt, draw);
    one.request.negative = wildcards->expand(request.negative, draw);
    recorded.seed = static_cast<int64_t>(seed);
    if (variation) recorded.variation = variation->text();
    recorded.prompt = one.request.prompt;
    recorded.negative = one.request.negative;
    for (size_t r = 0; r < one.request.regions.size(); ++r) {
      std::string& prompt = one.request.regions[r].prompt;
      prompt = wildcards->expand(prompt, draw);
      std::string& text = recorded.region->at(r);
      text = RegionText{prompt, parse_region(text).box}.text();
    }
    check_request_limits(recorded, limits);
    requests.push_back(std::move(one));
  }
}

// Adapters of a line are used beside those of the run; everything else replaces it.
SettingLayer line_settings(const Settings& settings, const PromptLine& line, const AppContext& context) {
  SettingLayer own = line.settings;
  const Setting* all = settings.find("lora");
  if (const auto lora = own.find("lora"); all && lora != own.end())
    lora->second.values = adapters_beside(all->values, lora->second.values, context);
  return own;
}

// The adapter and the encoder of a run are for those of its lines that have image prompts; the other lines do not use them.
void leave_to_other_lines(RequestSpec& own, const std::vector<PromptLine>& lines) {
  const auto has_image_prompt = [](const PromptLine& line) { return line.settings.contains("image-prompt"); };
  if (own.image_prompt || std::none_of(lines.begin(), lines.end(), has_image_prompt)) return;
  own.image_prompt_adapter.reset();
  own.image_prompt_encoder.reset();
}

// Attention grows with the square of the sequence: somebody who did not expect that should hear of it.
void warn_of_long_sequence(const Request& request, const Log& log) {
  const int64_t references = request.reference_tokens(), tokens = request.tokens() + references;
  if (tokens <= kLongSequence) return;
  log.warn("this request has {} tokens{}, which takes much time and memory; {} needs less", tokens,
           references > 0
               ? fmt::format(" ({} of the image, {} of {} references)", request.tokens(), references, request.references.size())
               : "",
           references > 0 ? "a smaller size, or fewer or smaller references (ref_pixels)," : "a smaller size");
}

SettingLayer as_defaults(SettingLayer layer) {
  for (auto& [name, setting] : layer) setting.is_default = true;
  return layer;
}

}  // namespace

std::vector<std::string> adapters_of_image(const GenerationRecord& record, const std::string& image, const AppContext& context) {
  std::vector<std::string> adapters;
  for (const AdapterRecord& adapter : record.adapters) {
    if (adapter.name.empty())
      throw Error(ErrorCode::NotFound, image + " was made with an adapter, but does not say which",
                  Hint("name it with {0}", {set_option("lora")}));
    const auto beside = std::filesystem::path(image).parent_path() / (adapter.name + ".safetensors");
    const bool is_beside =
        is_plain_name(adapter.name) && !adapter.sha256.empty() && is_file(beside) && sha256_of_file(beside) == adapter.sha256;
    try {
      const std::filesystem::path path =
          is_beside ? std::filesystem::absolute(beside) : adapter_by_name(adapter.name, image, context).path;
      adapters.push_back(text_of({path, adapter.weight, adapter.layers}));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::NotFound) throw;
      throw Error(e.code(),
                  fmt::format("{} was made with the adapter {}:{}, which is neither beside it nor installed", image,
                              printable(adapter.name), adapter.weight),
                  Hint("name its file with {0}", {set_option("lora", "FILE:STRENGTH")}));
    }
  }
  return adapters;
}

Task take_settings_of_image(Settings& settings, Task task, const AppContext& context) {
  const Setting *from = settings.find("from"), *remix = settings.find("remix");
  if (from && remix)
    throw Error(ErrorCode::InvalidArgument, fmt::format("{} and {} both name an image to reuse", from->origin, remix->origin),
                "leave one of them out");
  for (const char* option : {"from", "remix"}) {
    const Setting* file = settings.find(option);
    if (!file) continue;
    const std::string path = file->values.back();
    const auto found = find_record(read_metadata(path, context.limits.image), context.limits.json);
    if (!found)
      throw Error(ErrorCode::Incompatible, path + " does not contain its settings",
                  Hint("{0} shows what it contains", {run_command("inspect")}));
    const GenerationRecord& record = found->record;
    RequestSpec spec = spec_of_record(record, option == std::string_view("from"));
    const bool has_sources = record.canvas || !record.references.empty();
    if (has_sources && !settings.has("input")) spec.input = find_sources(record, path);
    if (!settings.has("region")) take_region_files(record, path, spec);
    if (record.is_ours()) take_image_prompt_files(record, path, settings, context, spec);
    const bool inpaints = record.kind == "inpaint";
    if (!record.mask_sha256.empty() && !settings.has(inpaints ? "mask" : "detail-mask"))
      (inpaints ? spec.mask : spec.detail_mask) = find_mask(record, path);
    if (inpaints && record.mask_difference && !settings.has("mask-from-diff"))
      spec.mask_from_diff = find_mask_difference(record, path);
    if (record.is_ours() && !record.adapters.empty() && !settings.has("lora"))
      spec.lora = adapters_of_image(record, path, context);
    spec.model.reset(), spec.base.reset();
    if (record.is_ours() && !settings.is_asked("model") && !settings.is_asked("dit")) {
      const RecordedModel model = find_recorded_model(record, path, context, spec_of(settings));
      model.set(spec);
      if (!model.problem.empty())
        context.log.warn("{}; {}", model.problem,
                         model.name.empty() ? "the default model is used" : "the image will not be the same");
    }
    if (inpaints) task = Task::Inpaint;
    const bool is_complete = record.is_ours() && found->source == "flux2";  // other forms leave out most settings
    SettingLayer layer = as_defaults(is_complete ? layer_of_record(spec, path) : layer_of(spec, path));
    hide_configured_transformer(layer, settings);
    if (inpaints)  // which works at a size only if it is asked for
      for (const char* side : {"width", "height"})
        if (const auto setting = layer.find(side); setting != layer.end()) setting->second.is_default = false;
    settings.add_below(option, std::move(layer));
  }
  return task;
}

PreparedRun prepare(Settings& settings, std::vector<PromptLine> prompts, Task task, const AppContext& context,
                    FoundModels* found) {
  RequestSpec spec = spec_of(settings);
  check_run_limits(prompts.size(), spec, context.limits);
  for (const PromptLine& line : prompts) {
    RequestSpec one = spec;
    one.prompt = line.prompt;
    check_request_limits(one, context.limits);
  }
  take_lora_tags(prompts, context);
  PreparedRun run{choose_model(spec, context, found), {}, settings.flag("offline")};
  for (const std::string& reason : run.model.reasons) context.log.info("{}", reason);
  if (spec.latent_path) {
    for (const std::string& path : *spec.latent_path) run.requests.push_back(resolve_latents(spec, path, context.log));
    return run;
  }
  if (spec.preset) {
    settings.add_below("preset", as_defaults(layer_of(quality_preset(*spec.preset, run.model), "preset " + *spec.preset)));
    spec = spec_of(settings);
  }
  const Styles styles = all_styles(context);
  std::optional<Wildcards> wildcards = wildcards_of(spec, context);
  InputImages images(context.log, context.standard_input, context.limits);
  for (int64_t round = 0; round < spec.repeat.value_or(1); ++round)
    for (const PromptLine& line : prompts) {
      RequestSpec own = spec_of(settings.with(line_settings(settings, line, context)));
      // The prompt of an image has its style, and was rewritten or not. A configured style or rewriter is for new prompts.
      if (line.literal) {
        if (!own.is_asked("style")) own.style.reset();
        if (!own.is_asked("upsample")) own.upsample.reset();
      }
      own.prompt = own.style ? apply_style(styles, *own.style, line.prompt) : line.prompt;
      // A rewritten prompt that comes with the settings of an image belongs to the prompt of that image alone.
      if (own.rewritten_prompt && !line.literal && !own.is_asked("rewritten_prompt")) own.rewritten_prompt.reset();
      if (round > 0) own.seed = -1;
      leave_to_other_lines(own, prompts);
      // Rounding and the like are the same in every round: one notice is enough.
      const Log log = round == 0 ? context.log : Log{};
      ResolvedRequest resolved = resolve(own, run.model, task, log, &images, context.limits);
      if (round == 0) warn_of_long_sequence(resolved.request, context.log);
      resolved.adapters = adapter_choices(own, context);
      follow_adapters(resolved, run.model, log);
      resolve_image_prompts(own, run.model, context, log, images, resolved);
      add_request(run.requests, std::move(resolved), wildcards && !line.literal && !own.rewritten_prompt ? &*wildcards : nullptr,
                  context.limits);
    }
  return run;
}

void refuse_long_prompts(const Models& models, const std::vector<ResolvedRequest>& requests, bool log_prompts) {
  if (!models.tokenizer) return;
  for (const ResolvedRequest& resolved : requests) {
    std::vector<const std::string*> texts = {&resolved.request.prompt, &resolved.request.negative};
    for (const Region& region : resolved.request.regions) texts.push_back(&region.prompt);
    for (const std::string* text : texts) {
      const PromptTokens tokens = tokenize_prompt(*models.tokenizer, *text, models.text_length);
      if (!tokens.dropped.empty())
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("a prompt has more than {} tokens: {}", models.text_length, unused_part(tokens, log_prompts)),
                    Hint("shorten it, or run without {0} to have it cut", {unset_option("strict")}));
    }
  }
}

const std::vector<AdapterChoice>& common_adapters(const PreparedRun& run) {
  const auto& adapters = run.requests.front().adapters;
  for (const ResolvedRequest& resolved : run.requests)
    check(resolved.adapters == adapters, "the merged model cannot be saved: the prompts of this run have different adapters");
  return adapters;
}

void save_merged_model(const std::filesystem::path& out, const ModelFiles& model, const std::vector<AdapterChoice>& adapters,
                       const Log& log) {
  if (adapters.empty())
    throw Error(ErrorCode::InvalidArgument, "no adapter was given to merge", Hint("name one with {0}", {set_option("lora")}));
  const Recognition found = recognise(model.transformer, log);
  const Component& part = required_part(found, ComponentKind::Transformer);
  std::string training = part.training();
  // The user or the registry may say otherwise than the file.
  if (part.distilled && *part.distilled != model.distilled) training = model.distilled ? "distilled" : "base";
  const NamedWeights base(open_weights(model.transformer, log), ModelPart::Transformer);
  std::vector<AdapterUse> uses;
  uses.reserve(adapters.size());
  for (const AdapterChoice& choice : adapters) uses.push_back({open_adapter(choice, detect_flux2(base), log), choice.strength});
  ThreadPool threads(0);
  merge_into_file(base, uses, out, threads, training);
  log.info("wrote {}", out.string());
}

}  // namespace flux2
