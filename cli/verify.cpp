#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "app/adapter_references.h"
#include "app/adapters.h"
#include "app/model_choice.h"
#include "app/model_keeper.h"
#include "app/prepare.h"
#include "app/recorded_model.h"
#include "app/resolve.h"
#include "app/resolve_image_prompts.h"
#include "app/resolve_regions.h"
#include "cli/command.h"
#include "cli/progress_display.h"
#include "image/difference.h"
#include "image/pixels.h"
#include "image/read_image.h"
#include "record/picture_metadata.h"

namespace flux2 {

namespace {

GenerationRecord record_of(const std::string& path, const Limits& limits) {
  const auto found = find_record(read_metadata(path, limits.image), limits.json);
  if (!found)
    throw Error(ErrorCode::Incompatible, path + " does not contain its settings", "flux2 inspect --raw shows what it says");
  const GenerationRecord& record = found->record;
  if (found->source != "flux2")
    throw Error(ErrorCode::Incompatible, fmt::format("{} was made by another program ({})", path, found->source),
                "flux2 generate --from takes its settings, as far as they mean something here");
  if (!found->original.contains("prompt"))
    throw Error(ErrorCode::Incompatible, path + " was made with --private, so it does not contain its prompt");
  if (record.kind != "generate" && record.kind != "edit")
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} was made by {}, whose images cannot be made again from their settings alone", path, record.kind),
                "only images of generate and edit can be verified");
  return record;
}

std::string adapters_of(const GenerationRecord& record) {
  std::vector<std::string> names;
  for (const AdapterRecord& adapter : record.adapters) names.push_back(fmt::format("{}:{}", adapter.name, adapter.weight));
  return fmt::format("{}", fmt::join(names, ", "));
}

class Verification {
 public:
  explicit Verification(Invocation& run)
      : run_(run),
        display_(run.console),
        keeper_(run),
        tolerance_(static_cast<int>(run.settings.integer("tolerance", 0, 255).value_or(0))) {}

  int run() {
    check(!run_.positional.empty(), "verify needs an image");
    for (const std::string& path : run_.positional) verify(path);
    display_.finish();
    if (run_.console.json())
      run_.console.result((results_.size() == 1 ? results_[0] : results_).dump(2, ' ', false, Json::error_handler_t::replace));
    return status_;
  }

 private:
  void verify(const std::string& path) {
    const GenerationRecord record = record_of(path, run_.limits);
    Invocation one = run_;
    RequestSpec recorded = spec_of_record(record);
    recorded.batch = 1;
    recorded.model.reset(), recorded.base.reset();
    if (!run_.settings.is_asked("model") && !run_.settings.is_asked("dit")) {
      const RecordedModel model = find_recorded_model(record, path, run_, run_.spec());
      if (!model.problem.empty())
        throw Error(model.name.empty() ? ErrorCode::NotFound : ErrorCode::Incompatible, model.problem,
                    "name a model with --model to compare with the image that it makes");
      model.set(recorded);
    }
    if (!record.references.empty() && !run_.settings.has("input")) recorded.input = find_sources(record, path);
    if (!run_.settings.has("region")) take_region_files(record, path, recorded);
    take_image_prompt_files(record, path, run_.settings, run_, recorded);
    if (!record.mask_sha256.empty() && !run_.settings.has("detail-mask")) recorded.detail_mask = find_mask(record, path);
    if (!record.adapters.empty() && !run_.settings.has("lora")) recorded.lora = adapters_of_image(record, path, run_);
    SettingLayer layer = layer_of_record(recorded, path);
    hide_configured_transformer(layer, run_.settings);
    one.settings.add_below_first(std::move(layer));
    const RequestSpec spec = one.spec();

    const ModelFiles model = choose_model(spec, run_, &found_);
    InputImages images(run_.log, {}, run_.limits);
    ResolvedRequest request = resolve(spec, model, Task::Generate, run_.log, &images, run_.limits);
    request.adapters = adapter_choices(spec, run_);
    follow_adapters(request, model, run_.log);
    resolve_image_prompts(spec, model, run_, run_.log, images, request);
    const bool same_images = request.record.references == record.references && request.record.mask_sha256 == record.mask_sha256;
    if (!same_images) run_.console.warn(fmt::format("{}: these are not the images it was made from", path));

    const bool truncate = spec.rounding == "trunc";
    Image again;
    display_.begin();
    PictureMaker& maker = keeper_.maker_for(spec, model, {&request, 1}, display_.progress());
    const auto compare = [&](const Picture& picture, const GenerationRecord& now) {
      if (!record.model_sha256.empty() && !now.model_sha256.empty() && record.model_sha256 != now.model_sha256)
        run_.console.warn(fmt::format("{} was made with another model file: sha256 {}… instead of {}…", path,
                                      record.model_sha256.substr(0, 10), now.model_sha256.substr(0, 10)));
      if (now.adapters != record.adapters)
        run_.console.warn(
            fmt::format("{} was made with other adapters: {}", path, record.adapters.empty() ? "none" : adapters_of(record)));
      if (now.image_prompts != record.image_prompts || now.image_prompt_adapter.sha256 != record.image_prompt_adapter.sha256 ||
          now.image_prompt_encoder.sha256 != record.image_prompt_encoder.sha256)
        run_.console.warn(fmt::format("{} was made with other image prompts, or with another adapter or encoder of them", path));
      again = picture.decoded.rgb8(truncate ? Rounding::Trunc : Rounding::Nearest);
    };
    maker.make(request, compare, display_.progress());
    report(path, again);
  }

  void report(const std::string& path, const Image& again) {
    const Image stored = to_rgb(read_image(path, {.limits = run_.limits.image}));
    if (stored.width != again.width || stored.height != again.height)
      fail(ErrorCode::Incompatible, "{} is {}x{}, its settings make {}x{}: it was resized or cropped", path, stored.width,
           stored.height, again.width, again.height);
    const PictureDifference d = difference(stored, again);
    const bool within = d.max <= tolerance_;
    if (!within) status_ = kExitDiffers;
    results_.push_back({{"file", path},
                        {"identical", d.identical()},
                        {"within_tolerance", within},
                        {"max", d.max},
                        {"mean", d.mean},
                        {"psnr", std::isinf(d.psnr) ? Json(nullptr) : Json(d.psnr)}});
    display_.finish();
    if (run_.console.json()) return;
    run_.console.result(d.identical() ? path + ": identical"
                                      : fmt::format("{}: {} (largest difference {}, mean {:.4f}, PSNR {:.2f} dB)", path,
                                                    within ? "within tolerance" : "differs", d.max, d.mean, d.psnr));
  }

  Invocation& run_;
  ProgressDisplay display_;
  FoundModels found_;
  ModelKeeper keeper_;
  int tolerance_, status_ = 0;
  Json results_ = Json::array();
};

}  // namespace

int run_verify(Invocation& run) { return Verification(run).run(); }

}  // namespace flux2
