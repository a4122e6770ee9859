#include "app/safety.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/model_choice.h"
#include "app/picture_maker.h"
#include "app/registry_access.h"
#include "base/error.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engine/image_classifier.h"
#include "hub/gguf_tokenizer.h"
#include "image/resize.h"
#include "pipeline/decoded_picture.h"
#include "pipeline/text_to_image.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNsfwLabel = "nsfw";
constexpr int kBlurredPlaces = 16;

std::string hash_of(const Image& image) {
  const std::string size = fmt::format("{}x{}x{}:", image.width, image.height, image.channels);
  return Sha256().add(std::as_bytes(std::span(size))).add(std::as_bytes(std::span(image.pixels))).hex();
}

std::string hash_of(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }

const char* name_of_judge(DecoderFamily family) { return family == DecoderFamily::Mistral ? "mistral" : "qwen"; }

// A model as the setting text-model names it: a folder of a whole model, or of a language model alone, or a name.
ModelFiles files_of_text_model(const std::string& given, const AppContext& context) {
  fs::path path = model_path(given, ComponentKind::TextEncoder, context);
  if (!path_exists(path)) {
    RequestSpec spec;
    spec.model = given;
    return choose_model(spec, context);
  }
  ModelFiles files;
  files.id = path.filename().string();
  files.text_encoder = is_folder(path / "text_encoder") ? path / "text_encoder" : path;
  files.tokenizer = tokenizer_beside(files.text_encoder);
  if (files.tokenizer.empty())
    fail(ErrorCode::NotFound, "there is no tokenizer beside {}, which safety.text-model names", files.text_encoder.string());
  return files;
}

// A published model that is installed and whose text encoder is of this family.
std::optional<ModelFiles> installed_with(DecoderFamily family, const AppContext& context) {
  const std::vector<const char*> names =
      family == DecoderFamily::Mistral
          ? std::vector<const char*>{"flux.2-dev"}
          : std::vector<const char*>{"flux.2-klein-4b", "flux.2-klein-base-4b", "flux.2-klein-9b", "flux.2-klein-base-9b"};
  for (const char* name : names) {
    try {
      RequestSpec spec;
      spec.model = name;
      return choose_model(spec, context);
    } catch (const Error&) {  // it is not installed, or not complete
    }
  }
  return std::nullopt;
}

bool is_of_family(const ModelFiles& files, DecoderFamily family) {
  try {
    return !files.text_encoder.empty() && family_of_text_encoder(files) == family;
  } catch (const Error&) {  // said when the model is loaded
    return false;
  }
}

Error refused(const std::string& what, const std::string& by, const char* advice) {
  return {ErrorCode::Refused, fmt::format("{} was refused by the safety check ({})", what, by), advice};
}

}  // namespace

fs::path find_nsfw_model(const std::string& given, const AppContext& context) {
  const Hint how("{0} installs one; safety.nsfw-model in the configuration names a file or a registered one",
                 {run_command("models install safety-nsfw")});
  if (!given.empty()) {
    const fs::path path = model_path(given, ComponentKind::Classifier, context);
    if (!path_exists(path)) throw Error(ErrorCode::NotFound, fmt::format("there is no image classifier named {}", given), how);
    return path;
  }
  if (const auto registry = look_into_registry(context))
    for (const ModelRecord& r : registry->all())
      if (r.type == ModelType::Classifier && r.state == ModelState::Ready && path_exists(r.path)) return r.path;
  throw Error(ErrorCode::NotFound, "images cannot be checked: no image classifier is installed", how);
}

Image blurred_image(const Image& rgb) {
  const int longest = std::max(rgb.width, rgb.height);
  const auto places = [&](int side) { return std::max(1, std::min(side, side * kBlurredPlaces / longest)); };
  return resize(resize(rgb, places(rgb.width), places(rgb.height), ResizeFilter::Bilinear), rgb.width, rgb.height,
                ResizeFilter::Bicubic);
}

Error refused_images(int count, int all) {
  return {ErrorCode::Refused,
          all == 1     ? std::string("the image was refused by the safety check")
          : count == 1 ? fmt::format("1 of {} images was refused by the safety check", all)
                       : fmt::format("{} of {} images were refused by the safety check", count, all),
          "another seed or prompt may give an image that passes"};
}

std::shared_ptr<Safety> Safety::open(const AppContext& context) {
  SafetySettings settings = safety_settings(context.environment, context.user);
  return settings.is_on() ? std::make_shared<Safety>(std::move(settings), context) : nullptr;
}

Safety::Safety(SafetySettings settings, AppContext context, SafetyModels models)
    : settings_(std::move(settings)), context_(std::move(context)), models_(std::move(models)) {
  context_.safety.reset();  // which may be this object
}

Safety::~Safety() = default;

void Safety::note(const std::string& what, const Verdict& verdict) const {
  if (!settings_.log) return;
  const std::string score = verdict.score < 0 ? "" : fmt::format(", nsfw {:.4f}", verdict.score);
  context_.log.info("safety check of {}: {} by {}{}", what, verdict.flagged ? "flagged" : "passed", verdict.by, score);
}

void Safety::check_request(const ResolvedRequest& resolved, const ModelFiles& model, const Cancelled& cancelled) {
  const std::lock_guard lock(mutex_);
  const Asked asked{resolved.spec, model, cancelled};
  const Request& request = resolved.request;
  if (checks_output() && !request.decode)
    throw Error(ErrorCode::InvalidArgument,
                "latents alone cannot be written while the safety check is on: it looks at finished images",
                Hint("use {0}", {set_option("output_type", "latent_images")}));

  const bool rewritten = resolved.record.request.rewritten_prompt.has_value();
  const auto check_text = [&](const std::string& what, const std::string& text) {
    if (trimmed(text).empty()) return;
    const Verdict verdict = prompt_verdict(text, asked);
    note(what, verdict);
    if (verdict.flagged) throw refused(what, verdict.by, "change the prompt");
  };
  // Saved latents are only decoded: their prompt, if they have one, is not used.
  if (settings_.text != SafetySettings::Text::Off && !request.given_latents.defined()) {
    if (request.given_text.defined() && (settings_.check.prompt || settings_.check.rewritten))
      throw Error(ErrorCode::InvalidArgument, "text states from a file cannot be used while prompts are checked",
                  Hint("give a prompt instead of {0}", {set_option("embeddings")}));
    if (settings_.check.prompt)
      check_text("the prompt", rewritten ? resolved.record.request.prompt.value_or("") : request.prompt);
    if (settings_.check.rewritten && rewritten) check_text("the rewritten prompt", request.prompt);
    if (settings_.check.prompt)
      for (size_t i = 0; i < request.regions.size(); ++i)
        check_text(fmt::format("the prompt of region {}", i + 1), request.regions[i].prompt);
  }

  if (settings_.images == SafetySettings::Images::Off) return;
  const auto check_image = [&](const std::string& what, const Image& image) {
    const Verdict verdict = image_verdict(image, asked);
    note(what, verdict);
    if (verdict.flagged) throw refused(what, verdict.by, "use another image");
  };
  const auto check_picture = [&](const std::string& what, const Planes& planes) {
    check_image(what, DecodedPicture(planes).rgb8(Rounding::Nearest));
  };
  if (settings_.check.references)
    for (size_t i = 0; i < request.references.size(); ++i)
      check_picture(fmt::format("reference image {}", i + 1), *request.references[i]);
  for (size_t r = 0; settings_.check.references && r < request.regions.size(); ++r)
    for (size_t i = 0; i < request.regions[r].references.size(); ++i)
      check_picture(fmt::format("reference image {} of region {}", i + 1, r + 1), *request.regions[r].references[i]);
  for (size_t i = 0; settings_.check.references && i < resolved.image_prompts.images.size(); ++i)
    check_image(fmt::format("image prompt {}", i + 1),
                to_rgb(*resolved.image_prompts.images[i].image, AlphaRule::Drop));  // as the encoder sees it
  if (settings_.check.canvas && request.canvas && request.canvas->picture)
    check_picture("the image to change", *request.canvas->picture);
}

Safety::Fate Safety::judge_output(Picture& picture, const ResolvedRequest& resolved, const ModelFiles& model, bool keeps_latents,
                                  const Cancelled& cancelled) {
  const std::lock_guard lock(mutex_);
  const Asked asked{resolved.spec, model, cancelled};
  const auto verdict_on = [&](const Image& made) {
    const Verdict verdict = image_verdict(resolved.finish ? resolved.finish(made) : made, asked);
    note("an image", verdict);
    return verdict;
  };
  const Image made = picture.decoded.rgb8(Rounding::Nearest);
  if (!verdict_on(made).flagged) return Fate::Passed;
  if (settings_.on_flag == SafetySettings::OnFlag::Refuse || keeps_latents) return Fate::Refused;
  const Image blurred = blurred_image(made);
  // An inpainted image has parts that are not blurred: they come from the canvas.
  if (resolved.finish && verdict_on(blurred).flagged) return Fate::Refused;
  picture.decoded = DecodedPicture(*planes_of(blurred));
  picture.latents.clear();
  return Fate::Blurred;
}

Safety::Verdict Safety::judge_prompt(const std::string& prompt, const RequestSpec& spec, const ModelFiles& model,
                                     const Cancelled& cancelled) {
  const std::lock_guard lock(mutex_);
  return prompt_verdict(prompt, {spec, model, cancelled});
}

Safety::Verdict Safety::judge_image(const Image& image, const RequestSpec& spec, const ModelFiles& model,
                                    const Cancelled& cancelled) {
  const std::lock_guard lock(mutex_);
  return image_verdict(image, {spec, model, cancelled});
}

void Safety::check_text(const std::string& what, const std::string& text, const RequestSpec& spec, const ModelFiles& model,
                        const Cancelled& cancelled) {
  if (settings_.text == SafetySettings::Text::Off || trimmed(text).empty()) return;
  const Verdict verdict = judge_prompt(text, spec, model, cancelled);
  note(what, verdict);
  if (verdict.flagged) throw refused(what, verdict.by, "change the prompt");
}

void Safety::check_image(const std::string& what, const Image& image, const RequestSpec& spec, const ModelFiles& model,
                         const Cancelled& cancelled) {
  if (settings_.images == SafetySettings::Images::Off) return;
  const Verdict verdict = judge_image(image, spec, model, cancelled);
  note(what, verdict);
  if (verdict.flagged) throw refused(what, verdict.by, "use another image");
}

void Safety::answer_once(Verdict& verdict, const std::string& hash, const std::function<YesNo()>& ask) {
  verdict.answer = answers_.find(hash);
  if (!verdict.answer) answers_.keep(hash, *(verdict.answer = ask()));
  verdict.flagged = verdict.answer->is_yes();
}

Safety::Verdict Safety::prompt_verdict(const std::string& prompt, const Asked& asked) {
  require(settings_.text != SafetySettings::Text::Off, "prompts are not checked");
  const DecoderFamily family = settings_.text == SafetySettings::Text::Mistral ? DecoderFamily::Mistral : DecoderFamily::Qwen3;
  Verdict verdict{.by = name_of_judge(family)};
  const std::string who = models_.prompt ? "" : language_files(family, asked).text_encoder.string();
  answer_once(verdict, hash_of("prompt\n" + who + "\n" + prompt), [&] {
    return models_.prompt ? models_.prompt(prompt) : judge_of(family, asked).about_prompt(prompt, asked.cancelled);
  });
  return verdict;
}

Safety::Verdict Safety::image_verdict(const Image& image, const Asked& asked) {
  const bool low = asked.spec.moderation == "low";
  const double threshold = low ? std::max(settings_.nsfw_threshold, kNsfwThresholdLow) : settings_.nsfw_threshold;
  const std::string hash = hash_of(image);
  Verdict verdict{.by = kNsfwLabel};
  if (const auto known = scores_.find(hash)) verdict.score = *known;
  else scores_.keep(hash, verdict.score = nsfw_score(image));
  verdict.flagged = verdict.score > threshold;
  if (verdict.flagged || settings_.images != SafetySettings::Images::NsfwAndMistral) return verdict;
  constexpr DecoderFamily kSees = DecoderFamily::Mistral;
  verdict.by = name_of_judge(kSees);
  const std::string who = models_.image ? "" : language_files(kSees, asked).text_encoder.string();
  answer_once(verdict, hash_of("image\n" + who + "\n" + hash),
              [&] { return models_.image ? models_.image(image) : judge_of(kSees, asked).about_image(image, asked.cancelled); });
  return verdict;
}

double Safety::nsfw_score(const Image& image) {
  if (models_.nsfw) return models_.nsfw(image);
  if (!classifier_) {
    const fs::path file = find_nsfw_model(settings_.nsfw_model, context_);
    auto loaded = std::make_unique<ImageClassifier>(file, 0, context_.log);
    nsfw_class_ = loaded->config().label(kNsfwLabel);
    if (nsfw_class_ < 0)
      throw Error(ErrorCode::Incompatible,
                  fmt::format("{} has no class \"{}\"; its classes are {}", file.string(), kNsfwLabel,
                              fmt::join(loaded->config().labels, ", ")),
                  "use Falconsai/nsfw_image_detection, or another classifier with a class of that name");
    classifier_ = std::move(loaded);
  }
  return classifier_->probability(image, nsfw_class_);
}

ModelFiles Safety::language_files(DecoderFamily family, const Asked& asked) {
  const std::string key = fmt::format("{}\n{}", name_of(family), asked.model.text_encoder.string());
  if (const auto known = found_.find(key); known != found_.end()) return known->second;
  const DecoderFamily of_prompts = settings_.text == SafetySettings::Text::Qwen ? DecoderFamily::Qwen3 : DecoderFamily::Mistral;
  std::optional<ModelFiles> files;
  if (!settings_.text_model.empty()) {
    files = files_of_text_model(settings_.text_model, context_);
    if (const DecoderFamily found = family_of_text_encoder(*files); found != family) {
      if (family == of_prompts)
        throw Error(ErrorCode::Incompatible,
                    fmt::format("the safety check needs the language model {}, but {}, which safety.text-model names, is {}",
                                name_of(family), settings_.text_model, name_of(found)),
                    "name another model, or change safety.text");
      files.reset();  // it is for prompts; images need another one
    }
  }
  // The bundled model knows a few hundred words, so its answers mean nothing.
  if (!files && !asked.model.bundled && is_of_family(asked.model, family)) files = asked.model;
  if (!files) files = installed_with(family, context_);
  if (!files)
    throw Error(ErrorCode::NotFound,
                asked.model.bundled
                    ? fmt::format("the safety check needs the language model {}: no installed model has it, and the text "
                                  "encoder of the bundled model is too small to judge prompts",
                                  name_of(family))
                    : fmt::format("the safety check needs the language model {}, but neither {} nor an installed model has it",
                                  name_of(family), asked.model.id.empty() ? "the model" : asked.model.id),
                family == DecoderFamily::Mistral
                    ? "name the folder of FLUX.2-dev or of Mistral-Small-3.2-24B-Instruct-2506 in the configuration as "
                      "safety.text-model, or use qwen for prompts"
                    : "name the folder of a klein model in the configuration as safety.text-model, or use mistral");
  constexpr size_t kMostFound = 64;
  if (found_.size() >= kMostFound) found_.clear();
  return found_[key] = *files;
}

YesNoJudge& Safety::judge_of(DecoderFamily family, const Asked& asked) {
  const ModelFiles files = language_files(family, asked);
  RequestSpec spec = asked.spec;
  if (!settings_.device.empty()) spec.device = settings_.device;
  const EngineOptions engine = engine_options(spec, context_);
  const bool sees = family == DecoderFamily::Mistral && settings_.images == SafetySettings::Images::NsfwAndMistral;
  const std::string key = fmt::format("{}\n{}\n{}\n{}", files.text_encoder.string(), engine.device, spec.quant.value_or(""),
                                      spec.quant_text_encoder.value_or(""));
  if (const auto known = judges_.find(key); known != judges_.end()) return *known->second;
  auto judge = in_context("the safety check cannot be done", [&] { return std::make_unique<YesNoJudge>(files, engine, sees); });
  return *judges_.emplace(key, std::move(judge)).first->second;
}

void Safety::release() {
  const std::lock_guard lock(mutex_);
  std::erase_if(judges_, [](const auto& entry) { return !entry.second->is_on_host(); });
}

}  // namespace flux2
