#include "cli/calibration.h"

#include <fmt/format.h>

#include <cmath>

#include "app/picture_maker.h"
#include "base/text.h"
#include "cli/prepare.h"
#include "hub/folder_layout.h"

namespace flux2 {

namespace {

const char* option_of(ComponentKind kind) {
  return kind == ComponentKind::TextEncoder ? "text-encoder" : kind == ComponentKind::Autoencoder ? "vae" : "dit";
}

// The folder of the model to which a part belongs.
std::filesystem::path root_of(const std::filesystem::path& input, const std::filesystem::path& part) {
  const auto root = model_root(std::filesystem::absolute(part));
  for (const auto& folder : {input, root, root.parent_path()})
    if (model_index_of(folder)) return folder;
  return root;
}

// In dB of the mean squared error of all pictures together, as they count alike.
double mean_psnr(const std::vector<CalibratedPicture>& pictures) {
  double square = 0;
  for (const CalibratedPicture& p : pictures) square += std::pow(10.0, -p.difference.psnr / 10.0);
  return -10.0 * std::log10(square / static_cast<double>(pictures.size()));
}

std::string decibel(double psnr) { return std::isinf(psnr) ? "identical" : fmt::format("{:.2f} dB", psnr); }
Json number(double psnr) { return std::isinf(psnr) ? Json(nullptr) : Json(psnr); }

}  // namespace

Calibration::Calibration(Invocation& run, const Component& source) : run_(run), display_(run.console), kind_(source.kind) {
  SettingLayer layer = {{"prompt-file", {{run.settings.text("calibrate")}, "--calibrate"}},
                        {option_of(kind_), {{source.path.string()}, "convert"}},
                        {"seed", {{"1"}, "convert"}},       // of lines that have none: the same in every run
                        {"quant", {{"none"}, "convert"}}};  // of the files, not of what is loaded
  if (!run.settings.has("model")) layer["model"] = {{root_of(run.positional[0], source.path).string()}, "convert"};
  run_.positional.clear();
  run_.settings = run.settings.with(std::move(layer));
  PreparedRun prepared = in_context("--calibrate", [&] { return prepare_run(run_); });
  model_ = std::move(prepared.model);
  requests_ = std::move(prepared.requests);
}

std::vector<Image> Calibration::pictures_of(const ModelFiles& model) {
  PictureMaker maker(run_, model, run_.spec());
  maker.load(requests_, display_.progress());
  std::vector<Image> images;
  for (const ResolvedRequest& resolved : requests_)
    maker.make(
        resolved,
        [&](const Picture& picture, const GenerationRecord&) { images.push_back(picture.decoded.rgb8(Rounding::Nearest)); },
        display_.progress());
  return images;
}

std::vector<CalibratedPicture> Calibration::compare(const std::filesystem::path& converted) {
  const std::vector<Image> before = pictures_of(model_);
  ModelFiles other = model_;
  (kind_ == ComponentKind::TextEncoder   ? other.text_encoder
   : kind_ == ComponentKind::Autoencoder ? other.vae
                                         : other.transformer) = converted;
  const std::vector<Image> after = pictures_of(other);
  display_.finish();
  std::vector<CalibratedPicture> pictures;
  size_t next = 0;
  for (const ResolvedRequest& resolved : requests_)
    for (int k = 0; k < resolved.request.batch; ++k, ++next)
      pictures.push_back(
          {resolved.request.prompt, resolved.request.seed + static_cast<uint64_t>(k), difference(before[next], after[next])});
  return pictures;
}

std::vector<std::string> lines_of(const std::vector<CalibratedPicture>& pictures) {
  std::vector<std::string> lines;
  for (const CalibratedPicture& p : pictures)
    lines.push_back(fmt::format("{:>10}  largest {:3}  mean {:6.3f}  seed {}  {}", decibel(p.difference.psnr), p.difference.max,
                                p.difference.mean, p.seed, printable(p.prompt)));
  if (!pictures.empty())
    lines.push_back(fmt::format("{:>10}  over all {} images", decibel(mean_psnr(pictures)), pictures.size()));
  return lines;
}

Json as_json(const std::vector<CalibratedPicture>& pictures) {
  Json list = Json::array();
  for (const CalibratedPicture& p : pictures)
    list.push_back({{"prompt", p.prompt},
                    {"seed", p.seed},
                    {"psnr", number(p.difference.psnr)},
                    {"max", p.difference.max},
                    {"mean", p.difference.mean}});
  return {{"list", list}, {"psnr", number(mean_psnr(pictures))}};
}

}  // namespace flux2
