#include <fmt/format.h>

#include <cmath>

#include "app/picture_maker.h"
#include "app/picture_writer.h"
#include "cli/command.h"
#include "cli/prepare.h"
#include "cli/progress_display.h"
#include "cli/show.h"
#include "image/align.h"
#include "image/pixels.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "pipeline/picture_size.h"
#include "record/picture_metadata.h"

namespace flux2 {

namespace {

// For pictures that do not say what they show.
constexpr const char* kRedrawPrompt = "the same picture as image 1, unchanged, sharp and in high detail";

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

class Upscaling {
 public:
  explicit Upscaling(Invocation& run)
      : run_(run),
        method_(run.settings.choice("method", {"lanczos", "redraw"}, "lanczos")),
        scale_(run.settings.number("scale", 1, 8).value_or(2)),
        spec_(run.spec()),
        target_(spec_.output.value_or("")),
        writer_(spec_, [&run](std::span<const std::byte> bytes) { run.console.result_bytes(bytes); }) {
    check(!run.positional.empty(), "upscale needs an image");
    writer_.expect(target_, static_cast<int>(run.positional.size()));
    writer_.check_targets();
  }

  int run() {
    for (const std::string& path : run_.positional) {
      const Image picture = read_image(path, {.limits = run_.limits.image});
      const ImageMetadata metadata = read_metadata(path, run_.limits.image);
      const auto found = find_record(metadata, run_.limits.json);
      const PictureSize size = scaled(picture, scale_);
      const Image large = resize(picture, size.width, size.height);
      if (method_ == "redraw") redraw(path, to_rgb(large), found);
      else enlarge(large, metadata, found);
    }
    return 0;
  }

 private:
  void written(const WrittenPicture& picture) {
    if (picture.path != "-") run_.console.result_path(picture.path.string());
    show_picture(picture.image, run_);
  }

  // The picture keeps what it said about itself; our own record, that it was made larger.
  void enlarge(const Image& large, const ImageMetadata& metadata, const std::optional<FoundRecord>& found) {
    if (found && found->source == "flux2") {
      GenerationRecord record = found->record;
      record.kind = "upscale";
      written(writer_.write(large, record, target_));
    } else {
      written(writer_.write(large, found ? found->record : GenerationRecord{}, target_, &metadata));
    }
  }

  // Generated anew at the nearest size the model can make, with the picture as its reference, then laid over the
  // enlarged original: models shift and tint what they draw again.
  void redraw(const std::string& path, const Image& large, const std::optional<FoundRecord>& found) {
    Invocation one = run_;
    one.positional.clear();
    const PictureSize size = valid_picture_size({large.width, large.height}, false, Log{});
    one.settings = run_.settings.with({{"input", {{path}, "upscale"}},
                                       {"width", {{std::to_string(size.width)}, "upscale"}},
                                       {"height", {{std::to_string(size.height)}, "upscale"}},
                                       {"batch", {{"1"}, "upscale"}},
                                       {"repeat", {{"1"}, "upscale"}}});
    if (!run_.settings.has("prompt")) {
      const std::string prompt = found && !found->record.prompt().empty() ? found->record.prompt() : kRedrawPrompt;
      one.settings = one.settings.with({{"prompt", {{prompt}, path}}});
    }
    const PreparedRun prepared = prepare_run(one);
    const ResolvedRequest& request = prepared.requests.front();
    ProgressDisplay display(run_.console);
    PictureMaker maker(run_, prepared.model, one.spec());
    maker.load(prepared.requests, display.progress());
    const auto deliver = [&](const Picture& picture, GenerationRecord record) {
      record.kind = "upscale";
      set_seed(record, picture);
      Image drawn = writer_.image_of(picture);
      drawn = resize(drawn, large.width, large.height);
      if (spec_.align.value_or("on") == "on")
        drawn = aligned(drawn, measure_alignment(drawn, large, everywhere(large.width, large.height)));
      record.request.width = drawn.width, record.request.height = drawn.height;
      display.finish();
      written(writer_.write(std::move(drawn), record, target_));
    };
    maker.make(request, deliver, display.progress());
  }

  Invocation& run_;
  std::string method_;
  double scale_;
  RequestSpec spec_;
  std::string target_;
  PictureWriter writer_;
};

}  // namespace

int run_upscale(Invocation& run) { return Upscaling(run).run(); }

}  // namespace flux2
