#include <fmt/format.h>

#include <memory>

#include "app/latent_files.h"
#include "app/model_choice.h"
#include "app/picture_maker.h"
#include "app/registry_access.h"
#include "cli/command.h"
#include "cli/progress_display.h"
#include "engine/engine.h"
#include "image/pixels.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "pipeline/latents.h"
#include "pipeline/references.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

constexpr int kGrid = 16;
constexpr int64_t kLargestSide = 4096;

struct Coder {
  Engine engine;
  std::unique_ptr<ModelSession> session;

  const Vae& vae() const { return *session->models.vae; }
  Stream& stream() const { return *session->stream; }
};

Coder open_coder(Invocation& run, ProgressDisplay& display) {
  // With --vae alone nothing else of a model has to exist.
  ModelFiles files;
  if (run.settings.has("vae") && !run.settings.has("model"))
    files.vae = model_path(run.settings.text("vae"), ComponentKind::Autoencoder, run);
  else files = locate_model(model_query(run.spec(), run), run.log);
  Engine engine(engine_options(run.spec(), run));
  auto session = engine.open(files, display.progress(), {.transformer = false, .text_encoder = false});
  return {std::move(engine), std::move(session)};
}

// The middle of a picture whose sides are multiples of 16.
Image on_grid(Image image, Invocation& run) {
  const int width = image.width / kGrid * kGrid, height = image.height / kGrid * kGrid;
  check(width > 0 && height > 0 && width <= kLargestSide && height <= kLargestSide,
        "an image of {}x{} cannot be encoded: sides go from {} to {}", image.width, image.height, kGrid, kLargestSide);
  if (width == image.width && height == image.height) return image;
  check(!run.settings.flag("strict"), "an image of {}x{}: sides must be multiples of {}", image.width, image.height, kGrid);
  run.console.warn(
      fmt::format("{}x{} is cropped to {}x{}: sides are multiples of {}", image.width, image.height, width, height, kGrid));
  return centre_crop(image, width, height);
}

void encode(Invocation& run, const std::string& input, const std::string& output) {
  const Image image = on_grid(to_rgb(read_image(input, {.limits = run.limits.image})), run);
  ProgressDisplay display(run.console);
  const Coder coder = open_coder(run, display);
  if (!coder.vae().config.has_encoder) fail(ErrorCode::Incompatible, "this autoencoder has no encoder");
  const Planes picture{image.width, image.height, from_rgb8(image)};
  const Tensor tokens = encode_picture(*coder.session, picture, display.progress());
  const int64_t channels = tokens.dim(2);
  const std::vector<float> latents = to_planes(tokens.to_floats(), channels);
  save_tensors(output, {{"latents",
                         Tensor::host_copy(latents.data(), DType::F32, {channels, image.height / kGrid, image.width / kGrid})}});
  display.finish();
}

void decode(Invocation& run, const std::string& input, const std::string& output) {
  const Tensor stored = read_latents(input, run.console.log()).latents;
  const ImageFormat format = format_from_name(output);
  ProgressDisplay display(run.console);
  const Coder coder = open_coder(run, display);
  const int64_t channels = coder.vae().config.packed_channels();
  if (stored.dim(0) != channels)
    fail(ErrorCode::Incompatible, "latents in {} have shape {}; this autoencoder takes [{}, h, w]", input, stored.shape(),
         channels);
  const int64_t rows = stored.dim(1), columns = stored.dim(2);

  const std::vector<float> values = to_tokens(stored.to_floats(), channels);
  const Tensor tokens = Tensor::from<float>(coder.stream(), DType::F32, {1, rows * columns, channels}, values);
  const Tensor picture = coder.vae().decode(tokens, rows, columns);  // [1, H, W, 3]
  const std::vector<float> planes = to_planes(picture.to_floats(), 3);
  const bool truncate = run.settings.choice("rounding", {"nearest", "trunc"}, "nearest") == "trunc";
  const Image image = to_rgb8(planes, static_cast<int>(rows) * kGrid, static_cast<int>(columns) * kGrid,
                              truncate ? Rounding::Trunc : Rounding::Nearest);
  save_image(output, encode_image(image, format, {},
                                  {.quality = static_cast<int>(run.settings.integer("quality", 1, 100).value_or(95))}));
  display.finish();
}

}  // namespace

int run_vae(Invocation& run) {
  check(run.positional.size() == 2 && (run.positional[0] == "encode" || run.positional[0] == "decode"),
        "vae is used as: vae encode|decode FILE -o FILE");
  const std::string output = run.settings.text("output");
  check(!output.empty() && output != "-", "vae {} needs -o FILE", run.positional[0]);
  if (run.positional[0] == "encode") encode(run, run.positional[1], output);
  else decode(run, run.positional[1], output);
  if (run.console.json())
    run.console.result(
        Json{{"path", output}, {"warnings", run.console.warnings()}}.dump(-1, ' ', false, Json::error_handler_t::replace));
  else run.console.result(output);
  return 0;
}

}  // namespace flux2
