#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "app/network_upscaler.h"
#include "app/picture_maker.h"
#include "app/picture_writer.h"
#include "app/resolve_inpaint.h"
#include "app/upscalers.h"
#include "cli/command.h"
#include "cli/prepare.h"
#include "cli/progress_display.h"
#include "cli/show.h"
#include "cli/user_input.h"
#include "image/align.h"
#include "image/pixels.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/watermark.h"
#include "pipeline/picture_size.h"
#include "pipeline/redraw.h"
#include "record/picture_metadata.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

// For pictures that do not say what they show.
constexpr const char* kRedrawPrompt = "the same picture as image 1, unchanged, sharp and in high detail";

// In tiles: how much of each is regenerated, and what a blur of this many pixels leaves comes from the enlarged image.
constexpr double kTileStrength = 0.3;
constexpr int kColourRadius = 8;

PictureSize scaled(const Image& image, double scale) {
  const auto side = [&](int s) { return static_cast<int>(std::lround(s * scale)); };
  check_image_size(side(image.width), side(image.height));
  return {side(image.width), side(image.height)};
}

// The mask under which all of a picture counts.
Image everywhere(int width, int height) {
  Image mask(width, height, 1);
  std::fill(mask.pixels.begin(), mask.pixels.end(), uint8_t{255});
  return mask;
}

// Refuses options that the method does not read, rather than ignoring them.
void check_method_options(const Settings& settings, const std::string& method) {
  if (method == "redraw") return;
  for (const char* name : {"prompt", "negative", "strength", "lora",         "align",         "seed",    "steps",    "guidance",
                           "cfg",    "schedule", "shift",    "noise",        "time-rounding", "sampler", "deadline", "dir",
                           "model",  "dit",      "vae",      "text-encoder", "tokenizer",     "base",    "quant"})
    check(!settings.is_asked(name), "--{} belongs to --method redraw", name);
  check(method == "esrgan" || !settings.is_asked("tile-size"), "--tile-size belongs to --method esrgan or redraw");
}

class Upscaling {
 public:
  explicit Upscaling(Invocation& run)
      : run_(run),
        spec_(run.spec()),
        paths_(run.positional),
        target_(spec_.output.value_or("")),
        writer_(spec_, [&run](std::span<const std::byte> bytes) { run.console.result_bytes(bytes); }) {
    if (const Setting* inputs = run.settings.find("input"))
      paths_.insert(paths_.end(), inputs->values.begin(), inputs->values.end());
    if (paths_.empty())
      throw Error(ErrorCode::InvalidArgument, "upscale needs an image",
                  Hint("{0} shows examples", {run_command("upscale --help")}));
    const bool named = run.settings.has("upscaler");
    method_ = run.settings.choice("method", {"lanczos", "esrgan", "redraw"}, named ? "esrgan" : "lanczos");
    check(!named || method_ != "lanczos", "--upscaler belongs to --method esrgan or redraw");
    check_method_options(run.settings, method_);
    const std::optional<double> scale = run.settings.number("scale", 1, 8);
    tile_ = static_cast<int>(run.settings.integer("tile-size", kSmallestUpscaleTile, kLargestUpscaleTile).value_or(0));
    if (method_ == "esrgan" || named) {
      const std::optional<std::string> name = named ? std::optional(run.settings.text("upscaler")) : std::nullopt;
      network_.emplace(find_upscaler(name, scale.value_or(method_ == "redraw" ? 2 : 4), run), engine_options(spec_, run));
      if (scale && *scale > network_->scale())
        run.console.warn(fmt::format("{} enlarges {} times; the rest of --scale {} is done with Lanczos", network_->name(),
                                     network_->scale(), *scale));
    }
    scale_ = scale.value_or(method_ == "esrgan" ? network_->scale() : 2);
    for (const std::string& path : paths_) writer_.expect(target_for(path), 1);
    writer_.check_targets(run.log);
    check_show_options(run.settings);
  }

  int run() {
    for (const std::string& path : paths_) {
      const Image picture = read_image(path, {.limits = run_.limits.image});
      const ImageMetadata metadata = read_metadata(path, run_.limits.image);
      const auto found = find_record(metadata, run_.limits.json);
      const PictureSize size = scaled(picture, scale_);
      Image large = network_ ? by_network(picture, size) : resize(picture, size.width, size.height);
      if (method_ == "redraw" && tile_ > 0) redraw_tiles(path, to_rgb(large), found);
      else if (method_ == "redraw") redraw(path, to_rgb(large), found);
      else enlarge(path, std::move(large), metadata, found);
    }
    if (run_.console.json())
      run_.console.result(
          Json{{"images", images_}, {"warnings", run_.console.warnings()}}.dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }

 private:
  // In a folder, an image keeps its name. Braces and percent signs in it would be read as tokens of a pattern.
  std::string target_for(const std::filesystem::path& path) const {
    std::error_code ignored;
    const std::string name = path.stem().string();
    const bool is_folder = target_.ends_with('/') || std::filesystem::is_directory(target_, ignored);
    return is_folder && name.find_first_of("{%") == name.npos ? (std::filesystem::path(target_) / name).string() + ".{ext}"
                                                              : target_;
  }

  void written(const WrittenPicture& picture) {
    images_.push_back({{"path", picture.path.string()}, {"width", picture.image.width}, {"height", picture.image.height}});
    if (picture.path != "-" && !run_.console.json()) run_.console.result_path(picture.path.string());
    show_picture(picture.image, run_);
  }

  Image by_network(const Image& picture, const PictureSize& size) {
    if (const std::string trace = run_.settings.text("trace"); !trace.empty())
      save_tensors(trace, {{"picture", network_->values(picture)}});
    EnlargeOptions options{.tile = method_ == "esrgan" ? tile_ : 0};
    int percent = -1;
    options.report = [&](int done, int all) {
      if (const int now = 100 * done / all; now != std::exchange(percent, now)) {
        if (run_.console.progress() == ProgressMode::Bar) run_.console.status(fmt::format("enlarge {} %", now));
        if (run_.console.progress() == ProgressMode::Json)
          run_.console.event({{"event", "enlarge"}, {"step", done}, {"steps", all}});
      }
    };
    options.cancelled = [] { return interrupt_signal() != 0; };
    Image large = network_->enlarge(picture, size.width, size.height, options);
    run_.console.clear_status();
    return large;
  }

  // Writes the watermark into an image of its final size, if one is chosen. Whether it did.
  bool mark(Image& image) {
    const WatermarkBits bits = chosen_watermark(spec_, image.width, image.height, run_.log);
    if (bits.empty()) return false;
    image = with_watermark(image, bits);
    if (const std::string problem = watermark_problem(image, bits); !problem.empty()) run_.log.warn("{}", problem);
    return true;
  }

  // The picture keeps what it said about itself; our own record, that it was made larger.
  void enlarge(const std::string& path, Image large, const ImageMetadata& metadata, const std::optional<FoundRecord>& found) {
    // A configured mark is for generated images.
    const bool marks = spec_.is_asked("watermark") && mark(large);
    if (found && found->source == "flux2") {
      GenerationRecord record = found->record;
      record.kind = "upscale";
      record.request.watermark = marks ? spec_.watermark : std::nullopt;  // enlarging destroys the one that it had
      if (network_) record.extra["upscaler"] = network_->name();
      written(writer_.write(std::move(large), record, target_for(path)));
    } else {
      written(writer_.write(std::move(large), found ? found->record : GenerationRecord{}, target_for(path), &metadata));
    }
  }

  // The request that draws an image of this size with the picture as its reference.
  PreparedRun prepared_redraw(const std::string& path, const PictureSize& size, const std::optional<FoundRecord>& found,
                              Invocation& one) {
    one.positional.clear();
    one.settings = run_.settings.with({{"input", {{path}, "upscale"}},
                                       {"width", {{std::to_string(size.width)}, "upscale"}},
                                       {"height", {{std::to_string(size.height)}, "upscale"}},
                                       {"watermark", {{"off"}, "upscale"}},  // the whole image gets it, at its final size
                                       {"batch", {{"1"}, "upscale"}},
                                       {"repeat", {{"1"}, "upscale"}}});
    if (!run_.settings.has("prompt")) {
      const std::string prompt = found && !found->record.prompt().empty() ? found->record.prompt() : kRedrawPrompt;
      one.settings = one.settings.with({{"prompt", {{prompt}, path}}});
    }
    return prepare_run(one);
  }

  // Regenerated at the nearest size the model can make, with the picture as its reference, then aligned with the enlarged
  // original: models shift and tint what they draw again.
  void redraw(const std::string& path, const Image& large, const std::optional<FoundRecord>& found) {
    Invocation one = run_;
    const PictureSize size = valid_picture_size({large.width, large.height}, false, Log{});
    const PreparedRun prepared = prepared_redraw(path, size, found, one);
    ProgressDisplay display(run_.console);
    PictureMaker maker(run_, prepared.model, one.spec());
    maker.load(prepared.requests, display.progress());
    const auto deliver = [&](const Picture& picture, GenerationRecord record) {
      Image drawn = resize(writer_.image_of(picture), large.width, large.height);
      if (spec_.align.value_or("on") == "on")
        drawn = aligned(drawn, measure_alignment(drawn, large, everywhere(large.width, large.height)));
      display.finish();
      write_redrawn(path, std::move(drawn), std::move(record), picture.seed);
    };
    maker.make(prepared.requests.front(), deliver, display.progress());
  }

  // Regenerated tile by tile: each starts from its part of the enlarged image with some noise, and sees that part as its
  // reference.
  void redraw_tiles(const std::string& path, const Image& large, const std::optional<FoundRecord>& found) {
    const auto side = [&](int length) { return std::min(tile_, (length + 15) / 16 * 16); };
    const PictureSize size = valid_picture_size({side(large.width), side(large.height)}, false, Log{});
    const Image canvas = padded_to(large, size.width, size.height);
    const int overlap = std::min(size.width, size.height) / 4;
    const auto corners = tile_corners(canvas.width, canvas.height, size.width, size.height, overlap);

    Invocation one = run_;
    const PreparedRun prepared = prepared_redraw(path, size, found, one);
    const double strength = spec_.strength.value_or(kTileStrength);
    ProgressDisplay display(run_.console);
    PictureMaker maker(run_, prepared.model, one.spec());
    maker.load(prepared.requests, display.progress());
    TileBlender blender(canvas.width, canvas.height, overlap);
    const ResolvedRequest& first = prepared.requests.front();
    GenerationRecord record;
    for (size_t i = 0; i < corners.size(); ++i) {
      const TileCorner& corner = corners[i];
      const Image part = crop(canvas, corner.left, corner.top, size.width, size.height);
      ResolvedRequest request = first;
      request.request.seed = first.request.seed + i;
      request.request.references = {planes_of(part)};
      request.request.canvas = Canvas{request.request.references.front(), strength};
      maker.make(
          request,
          [&](const Picture& picture, const GenerationRecord& made) {
            Image drawn = writer_.image_of(picture);
            if (spec_.align.value_or("on") == "on") drawn = with_colours_of(drawn, part, kColourRadius);
            blender.add(drawn, corner);
            record = made;
          },
          display.progress());
    }
    display.finish();
    record.request.strength = strength;
    record.extra["tile_size"] = tile_;
    write_redrawn(path, crop(blender.finish(), 0, 0, large.width, large.height), std::move(record), first.request.seed);
  }

  void write_redrawn(const std::string& path, Image drawn, GenerationRecord record, uint64_t seed) {
    record.kind = "upscale";
    record.request.seed = static_cast<int64_t>(seed);
    record.request.width = drawn.width, record.request.height = drawn.height;
    if (mark(drawn)) record.request.watermark = spec_.watermark;
    if (network_) record.extra["upscaler"] = network_->name();
    written(writer_.write(std::move(drawn), record, target_for(path)));
  }

  Invocation& run_;
  RequestSpec spec_;
  std::vector<std::string> paths_;
  Json images_ = Json::array();  // what was written
  std::string method_;
  double scale_ = 2;
  int tile_ = 0;                            // pixels; 0: the usual one, or none
  std::optional<NetworkUpscaler> network_;  // if one is used
  std::string target_;
  PictureWriter writer_;
};

}  // namespace

int run_upscale(Invocation& run) { return Upscaling(run).run(); }

}  // namespace flux2
