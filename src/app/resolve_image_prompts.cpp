#include "app/resolve_image_prompts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "app/image_prompt_files.h"
#include "base/error.h"
#include "base/file_hash.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "model/clip_vision.h"
#include "record/image_prompt_text.h"
#include "weights/named_weights.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kUsualEncoder = "clip-vit-large-patch14";

const char* field_of(ImagePromptPart part) {
  return part == ImagePromptPart::Adapter ? "image_prompt_adapter" : "image_prompt_encoder";
}

std::vector<std::string> names_of(const std::vector<ModelRecord>& records) {
  std::vector<std::string> names;
  for (const ModelRecord& r : records) names.push_back(r.name);
  return names;
}

fs::path file_of(ImagePromptPart part, const std::string& text, const std::string& origin, const AppContext& context) {
  if (path_exists(text)) return in_context(origin, [&] { return file_of_weights(text); });
  return registered_image_prompt_part(part, text, origin, context);
}

fs::path chosen_adapter(const RequestSpec& spec, const AppContext& context) {
  if (spec.image_prompt_adapter)
    return file_of(ImagePromptPart::Adapter, *spec.image_prompt_adapter, spec.origin("image_prompt_adapter"), context);
  const std::vector<std::string> names = names_of(registered_image_prompt_parts(ImagePromptPart::Adapter, context));
  throw Error(ErrorCode::InvalidArgument,
              spec.origin("image_prompt") + ": an image prompt needs an image-prompt adapter that was trained for this model",
              names.empty() ? Hint("name its file with {0}; {1} trains one",
                                   {set_option("image_prompt_adapter", "FILE"), run_command("train")})
                            : Hint(fmt::format("name one with {{0}}; registered: {}", fmt::join(names, ", ")),
                                   {set_option("image_prompt_adapter")}));
}

int64_t width_of(const ClipConfig& encoder, ImageFeature feature) {
  return feature == ImageFeature::Pooled ? encoder.hidden : encoder.projection;
}

Hint how_to_get_encoder() {
  return {"{0} installs the usual one; {1} names a file or a registered one",
          {run_command(std::string("models install ") + kUsualEncoder), set_option("image_prompt_encoder", "FILE")}};
}

// Of the registered encoders that fit, the one with the name that the adapter states, else the first.
fs::path fitting_encoder(const RequestSpec& spec, const ImagePromptConfig& adapter, const AppContext& context, const Log& log) {
  std::vector<ModelRecord> fitting;
  for (const ModelRecord& r : registered_image_prompt_parts(ImagePromptPart::Encoder, context)) {
    try {
      if (width_of(detect_clip(*open_weights(file_of_weights(r.path))), adapter.feature) == adapter.feature_width)
        fitting.push_back(r);
    } catch (const Error& e) {
      log.debug("the image encoder {} is not used: {}", r.name, e.what());
    }
  }
  if (fitting.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("{}: no registered image encoder has vectors of {} values, which the adapter reads; it was trained "
                            "with {}",
                            spec.origin("image_prompt"), adapter.feature_width, printable(adapter.encoder)),
                how_to_get_encoder());
  // Training states the geometry of an encoder without a published name.
  const auto same = [&](const ModelRecord& r) {
    const fs::path file = file_of_weights(r.path);
    return r.name == adapter.encoder || recorded_name(file) == adapter.encoder ||
           detect_clip(*open_weights(file)).name() == adapter.encoder;
  };
  const auto named = std::find_if(fitting.begin(), fitting.end(), same);
  const ModelRecord& chosen = named == fitting.end() ? fitting.front() : *named;
  if (named == fitting.end())
    log.warn("the image-prompt adapter was trained with the encoder {}; {} is used, which fits, but may not be the same",
             printable(adapter.encoder), chosen.name);
  return file_of_weights(chosen.path);
}

fs::path chosen_encoder(const RequestSpec& spec, const ImagePromptConfig& adapter, const AppContext& context, const Log& log) {
  if (!spec.image_prompt_encoder) return fitting_encoder(spec, adapter, context, log);
  const std::string origin = spec.origin("image_prompt_encoder");
  const fs::path file = file_of(ImagePromptPart::Encoder, *spec.image_prompt_encoder, origin, context);
  const ClipConfig encoder = in_context(origin, [&] { return detect_clip(*open_weights(file)); });
  const int64_t width = width_of(encoder, adapter.feature);
  if (width != adapter.feature_width)
    throw Error(
        ErrorCode::Incompatible,
        fmt::format("{}: the encoder has vectors of {} values, but the adapter reads {}; it was trained with {}", origin, width,
                    adapter.feature_width, printable(adapter.encoder)),
        Hint("name the encoder that the adapter was trained with, or leave out {0}", {unset_option("image_prompt_encoder")}));
  return file;
}

// Combinations that no model can make; check_image_prompts() refuses them as well, without knowing how the user can change them.
void refuse_combinations(const RequestSpec& spec, const ImagePromptConfig& adapter, const Request& request) {
  const auto refuse = [&](const char* why, Hint hint) {
    throw Error(ErrorCode::InvalidArgument, spec.origin("image_prompt") + ": " + why, std::move(hint));
  };
  if (adapter.form == ImagePromptForm::Tokens && !request.regions.empty())
    refuse("this image-prompt adapter adds tokens to the image, which cannot be combined with prompts for regions",
           Hint("leave out {0}, or use an adapter of the decoupled form", {unset_option("region")}));
  if (request.references_at_zero)
    refuse("an adapter of this request was trained for references at time 0, which cannot be combined with image prompts",
           Hint("leave out the references, {0} or {1}", {unset_option("lora"), unset_option("image_prompt")}));
}

}  // namespace

void resolve_image_prompts(const RequestSpec& spec, const ModelFiles& model, const AppContext& context, const Log& log,
                           InputImages& images, ResolvedRequest& resolved) {
  std::vector<ImagePromptText> prompts;
  for (const std::string& text : spec.image_prompt.value_or(std::vector<std::string>{}))
    if (ImagePromptText prompt = parse_image_prompt(text); prompt.strength != 0) prompts.push_back(std::move(prompt));
  if (prompts.empty()) {
    for (const char* name : {"image_prompt_adapter", "image_prompt_encoder"})
      if (spec.is_asked(name) && !spec.image_prompt)
        log.warn("{} has no effect, because there is no image prompt", spec.origin(name));
    return;
  }
  check(prompts.size() <= kMostImagePrompts, "{}: {} image prompts are given, but at most {} are possible",
        spec.origin("image_prompt"), prompts.size(), kMostImagePrompts);

  const fs::path adapter = chosen_adapter(spec, context);
  const auto source = open_weights(adapter, log);
  const ImagePromptConfig config = detect_image_prompt(*source);
  const NamedWeights transformer(open_weights(model.transformer), ModelPart::Transformer);
  in_context(adapter.filename().string(), [&] { check_image_prompt(config, detect_flux2(transformer)); });
  refuse_combinations(spec, config, resolved.request);

  ImagePromptUse& use = resolved.image_prompts;
  use.adapter = adapter;
  use.encoder = chosen_encoder(spec, config, context, log);
  use.feature = config.feature;
  resolved.record.image_prompt_adapter.name = recorded_name(use.adapter);
  resolved.record.image_prompt_encoder.name = recorded_name(use.encoder);
  for (const ImagePromptText& prompt : prompts) {
    const GivenPicture given = in_context(spec.origin("image_prompt"), [&] { return images.picture(prompt.file); });
    use.images.push_back(given);
    // The vector is computed when the request runs; forecasts need its width alone.
    resolved.request.image_prompts.push_back({.feature = std::vector<float>(static_cast<size_t>(config.feature_width)),
                                              .strength = prompt.strength,
                                              .from = prompt.from,
                                              .to = prompt.to});
    resolved.record.image_prompts.push_back({given.record, prompt.strength, prompt.from, prompt.to});
  }
}

namespace {

// A file of weights by name and content, beside an image or in the current folder, or a registered one by content. Empty: none.
std::string find_weights(ImagePromptPart part, const WeightsRecord& weights, const std::string& picture,
                         const AppContext& context) {
  if (weights.sha256.empty()) return "";  // two files may have the same name
  if (is_plain_name(weights.name))        // anybody may have written the record
    for (const fs::path& folder : {fs::path(picture).parent_path(), fs::path()})
      for (const fs::path& file : {folder / (weights.name + ".safetensors"), folder / weights.name / "model.safetensors"})
        if (is_file(file) && sha256_of_file(file) == weights.sha256) return fs::absolute(file).string();
  const fs::path hashes = data_path(context.environment, "cache/hashes.json");
  for (const ModelRecord& r : registered_image_prompt_parts(part, context)) {
    try {
      const fs::path file = file_of_weights(r.path);
      if (remembered_hash(file, hashes, std::numeric_limits<uint64_t>::max()) == weights.sha256) return file.string();
    } catch (const Error&) {  // one that cannot be read is not the one
    }
  }
  return "";
}

}  // namespace

void take_image_prompt_files(const GenerationRecord& record, const std::string& picture, const Settings& settings,
                             const AppContext& context, RequestSpec& spec) {
  if (record.image_prompts.empty()) return;
  const bool own_prompts = settings.has("image-prompt");
  const auto called = [](const std::string& name, const std::string& sha256) {
    return name.empty() ? "with sha256 " + sha256.substr(0, 10) : name;
  };
  if (!own_prompts) {
    spec.image_prompt.emplace();
    for (const ImagePromptRecord& prompt : record.image_prompts) {
      const std::string file = find_recorded_file(prompt.picture, picture);
      if (file.empty())
        throw Error(ErrorCode::NotFound,
                    fmt::format("{} was made with the image prompt {}, which is not in its folder", picture,
                                called(prompt.picture.name, prompt.picture.sha256)),
                    Hint("give all image prompts again with {0}", {set_option("image_prompt", "FILE:STRENGTH")}));
      spec.image_prompt->push_back(ImagePromptText{file, prompt.strength, prompt.from, prompt.to}.text());
    }
  }
  const auto take = [&](ImagePromptPart part, const WeightsRecord& weights, const char* option, RequestSpec::Text& text) {
    if (settings.has(option)) return;
    const std::string file = find_weights(part, weights, picture, context);
    if (!file.empty()) text = file;
    else if (!own_prompts)
      throw Error(ErrorCode::NotFound,
                  fmt::format("{} was made with the {} {}, which is neither in its folder nor registered", picture, name_of(part),
                              called(weights.name, weights.sha256)),
                  Hint("name its file with {0}", {set_option(field_of(part), "FILE")}));
  };
  take(ImagePromptPart::Adapter, record.image_prompt_adapter, "image-prompt-adapter", spec.image_prompt_adapter);
  take(ImagePromptPart::Encoder, record.image_prompt_encoder, "image-prompt-encoder", spec.image_prompt_encoder);
}

}  // namespace flux2
