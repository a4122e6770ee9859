#include "pipeline/text_to_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>

#include "image/pixels.h"
#include "image/watermark.h"
#include "ops/view.h"
#include "pipeline/check_request.h"
#include "pipeline/decode.h"
#include "pipeline/denoise.h"
#include "pipeline/image_prompts.h"
#include "pipeline/latents.h"
#include "pipeline/references.h"
#include "pipeline/regions.h"
#include "pipeline/seamless.h"
#include "pipeline/text_states.h"
#include "pipeline/texts_to_images.h"
#include "pipeline/tiles.h"

namespace flux2 {

namespace {

class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Waits for the stream before the networks that its work reads can be unloaded.
class WaitAtEnd {
 public:
  explicit WaitAtEnd(Stream& stream) : stream_(stream) {}
  WaitAtEnd(const WaitAtEnd&) = delete;
  WaitAtEnd& operator=(const WaitAtEnd&) = delete;
  ~WaitAtEnd() {
    try {
      stream_.wait();
    } catch (...) {  // a destructor must not throw; a device failure is reported elsewhere
    }
  }

 private:
  Stream& stream_;
};

Tensor given_states(const Tensor& states, int64_t width) {
  check(states.rank() == 2 && states.dim(1) == width, "the given text states have shape {}; this model needs [tokens, {}]",
        states.shape(), width);
  return states.reshaped({1, states.dim(0), states.dim(1)});
}

// Whether some prompt of the request is not in the cache.
bool needs_encoder(const Session& session, const Request& request) {
  const auto unknown = [&](const Tensor& given, const std::string& prompt) {
    return !given.defined() && (session.trace || !session.prompt_cache.contains(prompt));
  };
  const auto prompts = prompts_of(request);
  return std::any_of(prompts.begin(), prompts.end(), [&](const auto& prompt) { return unknown(request.given_text, prompt); }) ||
         (request.cfg && unknown(request.given_negative, request.negative));
}

// The encoder is about to be unloaded, so the prompts of the next requests are encoded now.
void encode_ahead(Session& session, const Progress& progress) {
  constexpr int kAtMost = 16;  // 16 MB of states each
  const int count = std::min(static_cast<int>(session.prompts_ahead.size()), kAtMost);
  for (int i = 0; i < count; ++i) {
    progress.at(Phase::Text, i + 1, count + 1);
    text_states(session, session.prompts_ahead[static_cast<size_t>(i)], "", progress);
  }
}

// The states of the prompt and of the prompts of regions, one after the other.
Tensor states_of_prompts(Session& session, const Request& request, const Progress& progress) {
  const auto prompts = prompts_of(request);
  const size_t own = prompts.size() - request.regions.size();  // 0 if regions cover the whole image
  std::vector<Tensor> states;
  for (size_t i = 0; i < prompts.size(); ++i) {
    states.push_back(text_states(session, prompts[i], i < own ? "text" : fmt::format("regions.{}.text", i - own), progress));
    check(states[i].dim(1) == states[0].dim(1), "the prompts of regions have {} and {} tokens", states[0].dim(1),
          states[i].dim(1));
  }
  return states.size() == 1 ? states[0] : concat(states, 1);
}

TextConditions encode_text(Session& session, const Request& request, const Progress& progress) {
  progress.at(Phase::Text, 0, 1);
  const Models& models = session.models;
  const bool encodes = models.text_encoder && needs_encoder(session, request);
  const auto encoder = encodes ? models.text_encoder.get() : nullptr;  // keeps it in memory even if another session unloads it
  const WaitAtEnd wait(*session.stream);
  const int64_t width = models.transformer.config().text_width;
  TextConditions text;
  text.positive =
      request.given_text.defined() ? given_states(request.given_text, width) : states_of_prompts(session, request, progress);
  if (request.cfg)
    text.negative = request.given_negative.defined() ? given_states(request.given_negative, width)
                                                     : text_states(session, request.negative, "negative", progress);
  for (const std::string* used : {&request.prompt, &request.negative}) std::erase(session.prompts_ahead, *used);
  for (const Region& region : request.regions) std::erase(session.prompts_ahead, region.prompt);
  if (session.text_done && encodes && !session.trace) encode_ahead(session, progress);
  session.stream->wait();
  if (session.text_done) session.text_done(session);
  progress.at(Phase::Text, 1, 1);
  return text;
}

std::vector<float> noise_for(const Request& request, int64_t channels, int index, Stream& stream) {
  if (!request.given_noise.defined()) {
    const auto [seed, variation] = request.seed_of_image(index);
    const NoiseSource source = request.noise.on(stream.device());
    std::vector<float> noise = make_noise(source, seed, channels, request.rows(), request.columns(), &stream);
    if (variation)
      mix_noise(noise, make_noise(source, variation->seed, channels, request.rows(), request.columns(), &stream),
                variation->strength);
    return noise;
  }
  const Shape expected{channels, request.rows(), request.columns()};
  check(request.given_noise.shape() == expected, "the given noise has shape {}; this size needs {}", request.given_noise.shape(),
        expected);
  return request.given_noise.to_floats();
}

// Tokens [1, I, C] as [C, rows, columns] values on the host; turned on the device.
std::vector<float> planes_of_tokens(const Tensor& z) { return permute(z, {0, 2, 1}).contiguous().to_floats(); }

// At once or tile by tile, as the session says. z [1, I, 128].
DecodedPicture decode_picture(Session& session, const Tensor& z, int64_t rows, int64_t columns, const Progress& progress) {
  const auto& vae = session.models.vae;
  const BeforeBlock before_block = progress.before_block();
  if (session.decode_tile == 0 || std::max(rows, columns) <= session.decode_tile)
    return DecodedPicture(decode_tokens(vae, session, z, rows, columns, before_block));
  const Tensor grid = z.reshaped({1, rows, columns, z.dim(2)});
  return DecodedPicture(join_tiles(rows, columns, tiles_of(rows, columns, session.decode_tile), [&](const Tile& t) {
    const Tensor part = grid.narrowed(1, t.row, t.rows).narrowed(2, t.column, t.columns).contiguous();
    const Tensor tokens = part.reshaped({1, t.rows * t.columns, z.dim(2)});
    return DecodedPicture(decode_tokens(vae, session, tokens, t.rows, t.columns, before_block)).planes();
  }));
}

// The latents are finished and kept, so nothing is denoised again if the decoder runs out of memory.
DecodedPicture decode_in_less_memory(Session& session, const Tensor& z, int64_t rows, int64_t columns, const Progress& progress) {
  for (;;) {
    try {
      return decode_picture(session, z, rows, columns, progress);
    } catch (const Error& e) {
      const int64_t tile = smaller_tile(session.decode_tile, rows, columns);
      if (e.code() != ErrorCode::OutOfMemory || tile == 0) throw;
      session.log.warn("{}; decoding the image again in tiles of {} pixels", e.what(), 16 * tile);
      session.decode_tile = tile;
      session.captured_work.clear();  // each recorded run keeps the memory that it needed
    }
  }
}

// Image `index` of a request from its finished latents z [1, I, 128].
Picture picture_of(Session& session, const Request& request, const Tensor& z, int index, const Progress& progress) {
  const int64_t rows = request.rows(), columns = request.columns();
  const auto [seed, variation] = request.seed_of_image(index);
  Picture picture{.seed = seed, .variation = variation, .index = index, .rows = rows, .columns = columns};
  picture.latents = planes_of_tokens(z);
  if (has_nan(picture.latents)) throw damaged_model(session, "the transformer produced values that are not numbers");
  if (!request.decode) return picture;
  const WrappedGrid grid(request);
  const Tensor tokens = grid.wrapped(z);
  std::function<DecodedPicture()> in_f32;
  if (session.decode_in_f32) in_f32 = [&] { return DecodedPicture(session.decode_in_f32(tokens, grid.rows(), grid.columns())); };
  const bool only_in_f32 = session.always_decode_in_f32 && in_f32;
  const auto decode = [&] {
    return only_in_f32 ? in_f32() : decode_in_less_memory(session, tokens, grid.rows(), grid.columns(), progress);
  };
  picture.decoded = checked_decode(decode, only_in_f32 ? nullptr : in_f32, session, picture.decoded_in_f32);
  if (grid.is_wrapped()) picture.decoded = DecodedPicture(grid.middle(picture.decoded.planes()));
  if (session.trace && picture.index == 0)
    session.trace->add_floats("image", picture.decoded.planes().values, {3, request.height, request.width});
  if (!request.watermark.empty()) picture.decoded = watermarked(picture.decoded, request.watermark, session.log);
  return picture;
}

PhaseTimes decode_given(Session& session, const Request& request, const Progress& progress,
                        const std::function<void(Picture)>& deliver) {
  const int64_t channels = session.models.vae->config.packed_channels();
  const Shape expected{channels, request.rows(), request.columns()};
  check(request.given_latents.shape() == expected, "the latents given have shape {}; this autoencoder takes {}",
        request.given_latents.shape(), expected);
  PhaseTimes times;
  Stopwatch watch;
  progress.at(Phase::Decode, 0, 1);
  const std::vector<float> tokens = to_tokens(request.given_latents.to_floats(), channels);
  const Tensor z = Tensor::from<float>(*session.stream, DType::F32, {1, request.tokens(), channels}, tokens);
  Picture picture = picture_of(session, request, z, 0, progress);
  times.decode = watch.lap();
  deliver(std::move(picture));
  progress.at(Phase::Decode, 1, 1);
  return times;
}

// The latents [1, I, 128] that a request starts from.
Tensor canvas_latents(Session& session, const Request& request, const Progress& progress) {
  const Canvas& canvas = *request.canvas;
  if (canvas.latents.empty()) return encode_picture(session, *canvas.picture, progress);
  const int64_t channels = session.models.transformer.config().channels;
  const std::vector<float> tokens = to_tokens(canvas.latents, channels);
  return Tensor::from<float>(*session.stream, DType::F32, {1, request.tokens(), channels}, tokens);
}

// One of the images that requests ask for together.
struct WantedImage {
  size_t request;
  int index;  // within its request
};

using Noise = std::vector<std::vector<float>>;  // of some images

// If the host draws it, another thread does so while the text is encoded or the images before are computed: a GPU would wait for
// it. What is passed must outlive the result.
std::future<Noise> drawn_ahead(std::span<const Request> requests, std::span<const WantedImage> images, int64_t channels,
                               Stream& stream) {
  const bool needs_stream = std::any_of(images.begin(), images.end(), [&](const WantedImage& image) {
    const Request& request = requests[image.request];
    return request.noise.kind == NoiseSource::TorchCuda || request.given_noise.defined();
  });
  const auto draw = [requests, images, channels, &stream] {
    Noise noise;
    for (const WantedImage& image : images) noise.push_back(noise_for(requests[image.request], channels, image.index, stream));
    return noise;
  };
  try {
    if (!needs_stream) return std::async(std::launch::async, draw);
  } catch (const std::system_error&) {
    // The system allows no more threads: it is drawn when it is needed.
  }
  return std::async(std::launch::deferred, draw);
}

std::vector<WantedImage> wanted_images(std::span<const Request> requests) {
  std::vector<WantedImage> wanted;
  for (size_t r = 0; r < requests.size(); ++r)
    for (int k = 0; k < requests[r].batch; ++k) wanted.push_back({r, k});
  return wanted;
}

// The text of a group of images: one row if they share it, else one for each image.
TextConditions text_of_group(const std::vector<TextConditions>& texts, std::span<const WantedImage> group) {
  const bool same = std::all_of(group.begin(), group.end(), [&](const WantedImage& w) { return w.request == group[0].request; });
  if (same) return texts[group[0].request];
  std::vector<Tensor> positive, negative;
  for (const WantedImage& image : group) {
    positive.push_back(texts[image.request].positive);
    if (texts[image.request].negative.defined()) negative.push_back(texts[image.request].negative);
  }
  return {concat(positive, 0), negative.empty() ? Tensor() : concat(negative, 0)};
}

}  // namespace

bool can_run_together(const Request& a, const Request& b) {
  const auto plain = [](const Request& r) {
    return r.references.empty() && !r.canvas && r.regions.empty() && r.image_prompts.empty() && !r.given_text.defined() &&
           !r.given_negative.defined() && !r.given_noise.defined() && !r.given_latents.defined() && r.decode;
  };
  return plain(a) && plain(b) && a.width == b.width && a.height == b.height && a.steps == b.steps && a.guidance == b.guidance &&
         a.cfg == b.cfg && a.sampler == b.sampler && a.sigmas() == b.sigmas() && a.time_rounding == b.time_rounding &&
         a.cache_tolerance == b.cache_tolerance && a.tile_x == b.tile_x && a.tile_y == b.tile_y;
}

PhaseTimes texts_to_images(Session& session, std::span<const Request> requests, const Progress& progress,
                           const std::function<void(size_t request, Picture picture)>& deliver) {
  check(!requests.empty(), "no request to run");
  for (const Request& request : requests) {
    check_request(request, session.models);
    check_image_prompts(request, session.image_prompt.get());
    check(&request == requests.data() || can_run_together(requests[0], request), "these requests cannot run as one batch");
  }
  const Request& first = requests[0];
  if (first.given_latents.defined())
    return decode_given(session, first, progress, [&](Picture picture) { deliver(0, std::move(picture)); });
  PhaseTimes times;
  Stopwatch watch;
  const Models& models = session.models;
  const int64_t channels = models.transformer.config().channels;
  const std::vector<WantedImage> wanted = wanted_images(requests);
  std::future<Noise> drawn = drawn_ahead(requests, std::span(wanted).first(1), channels, *session.stream);
  const auto encodes = [&](const Request& request) { return needs_encoder(session, request); };
  if (models.text_encoder && std::any_of(requests.begin(), requests.end(), encodes)) {
    if (session.text_begins) session.text_begins(session);
    models.text_encoder.get();
  }
  times.load = watch.lap();
  // An encoder that is unloaded after use encodes all prompts while it is in memory.
  for (const Request& request : requests.subspan(1)) {
    for (std::string& prompt : prompts_of(request)) session.prompts_ahead.push_back(std::move(prompt));
    if (request.cfg) session.prompts_ahead.push_back(request.negative);
  }
  std::vector<TextConditions> texts;
  for (const Request& request : requests) texts.push_back(encode_text(session, request, progress));
  times.text = watch.lap();
  Conditions conditions;
  conditions.text = texts[0];
  conditions.references = encode_references(session, first, progress);
  conditions.image_prompt_tokens = image_prompt_tokens(first, session.image_prompt.get());
  if (first.canvas) {
    progress.at(Phase::EncodeReferences, 0, 1);
    conditions.canvas = canvas_latents(session, first, progress);
    progress.at(Phase::EncodeReferences, 1, 1);
  }
  times.references = watch.lap();
  const auto transformer = models.transformer.get();
  const WaitAtEnd wait(*session.stream);
  times.load += watch.lap();

  const int64_t tokens = tokens_of_pass(first, conditions) * (first.cfg ? 2 : 1);
  // Which steps a cache leaves out must not depend on the other images of a batch.
  const int64_t at_once = first.cache_tolerance > 0 ? 1 : session.tokens_at_once / tokens;
  const auto most = std::clamp<int64_t>(at_once, 1, static_cast<int64_t>(wanted.size()));
  const auto group_at = [&](size_t begin) {
    return std::span(wanted).subspan(begin, std::min(static_cast<size_t>(most), wanted.size() - begin));
  };
  for (size_t begin = 0; begin < wanted.size(); begin += static_cast<size_t>(most)) {
    const auto group = group_at(begin);
    Noise noise = drawn.get();
    for (const WantedImage& image : group.subspan(noise.size()))  // those of the first group but the first
      noise.push_back(noise_for(requests[image.request], channels, image.index, *session.stream));
    const size_t end = begin + group.size();
    if (end < wanted.size()) drawn = drawn_ahead(requests, group_at(end), channels, *session.stream);
    conditions.text = text_of_group(texts, group);
    const Denoised denoised = denoise(session, first, conditions, noise, progress);
    times.denoise += watch.lap();

    const int count = static_cast<int>(group.size());
    for (int k = 0; k < count; ++k) {
      const WantedImage& image = group[static_cast<size_t>(k)];
      progress.at(Phase::Decode, k, count);
      const Tensor z = denoised.latents.narrowed(0, k, 1).contiguous();
      Picture picture = picture_of(session, requests[image.request], z, image.index, progress);
      if (first.cache_tolerance > 0) picture.cache = denoised.cache;
      times.decode += watch.lap();
      deliver(image.request, std::move(picture));
      watch.lap();
      progress.at(Phase::Decode, k + 1, count);
    }
  }
  return times;
}

PhaseTimes text_to_image(Session& session, const Request& request, const Progress& progress,
                         const std::function<void(Picture)>& deliver) {
  return texts_to_images(session, {&request, 1}, progress, [&](size_t, Picture picture) { deliver(std::move(picture)); });
}

DecodedPicture watermarked(const DecodedPicture& picture, const std::vector<bool>& bits, const Log& log) {
  Planes planes = picture.planes();
  add_watermark(planes.values, planes.height, planes.width, bits);
  DecodedPicture marked(std::move(planes));
  if (const std::string problem = watermark_problem(marked.rgb8(Rounding::Nearest), bits); !problem.empty())
    log.warn("{}", problem);
  return marked;
}

}  // namespace flux2
