// Stopping a run, and running out of memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "backend/cpu/cpu_stream.h"
#include "engine/engine.h"
#include "pipeline/references.h"
#include "pipeline/tiles.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

Request request_of(int size, int steps) {
  Request request;
  request.prompt = "a red circle";
  request.width = request.height = size;
  request.steps = steps;
  return request;
}

// Another thread cancels while a block is computed: that block is the last one.
TEST(Cancel, TakesEffectBeforeTheNextBlock) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto session = engine.open(short_text_model());
  int in_all = 0;
  Progress counting;
  counting.cancelled = [&] { return ++in_all < 0; };
  text_to_image(*session, request_of(64, 2), counting, [](const Picture&) {});
  const auto layers = static_cast<int>(session->models.text_encoder.config().layers_needed());
  const Flux2Config& config = session->models.transformer.config();
  const int blocks = 2 * static_cast<int>(config.double_blocks + config.single_blocks);
  EXPECT_GE(in_all, layers + blocks + 10) << "layers of the encoder, blocks of two steps, stages of the decoder";

  for (int stop_at : {1, layers / 2, layers + blocks / 2, in_all - 3}) {
    session->prompt_cache.clear();
    std::atomic<int> seen = 0;
    std::atomic<bool> stop = false;
    std::jthread other([&] {
      while (seen < stop_at) std::this_thread::yield();
      stop = true;
    });
    Progress progress;
    progress.cancelled = [&] {
      if (++seen < stop_at) return false;
      while (!stop) std::this_thread::yield();  // the other thread stops the run in the middle of this block
      return seen > stop_at;
    };
    try {
      text_to_image(*session, request_of(64, 2), progress, [](const Picture&) { FAIL() << "a picture was finished"; });
      FAIL() << "it went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::Cancelled);
    }
    EXPECT_EQ(seen, stop_at + 1) << "one block later";
  }
  int pictures = 0;
  text_to_image(*session, request_of(64, 2), {}, [&](const Picture&) { ++pictures; });
  EXPECT_EQ(pictures, 1) << "the session can be used again";
}

TEST(Cancel, ADeadlineEndsARun) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto session = engine.open(short_text_model());
  Progress progress;
  int steps_done = 0;
  progress.report = [&](Phase phase, int step, int) {
    if (phase != Phase::Denoise) return;
    steps_done = step;
    if (step == 1) progress.deadline = std::chrono::steady_clock::now();
  };
  EXPECT_THROW(text_to_image(*session, request_of(64, 4), progress, [](const Picture&) {}), Error);
  EXPECT_EQ(steps_done, 1);
}

// Memory in which no single allocation may exceed a limit.
class LimitedStream final : public CpuStream {
 public:
  using CpuStream::CpuStream;

  std::shared_ptr<void> allocate(size_t bytes) override {
    largest = std::max(largest, bytes);
    if (bytes > limit) throw Error(ErrorCode::OutOfMemory, fmt::format("no memory for {} bytes", bytes));
    return CpuStream::allocate(bytes);
  }

  size_t limit = SIZE_MAX, largest = 0;
};

std::shared_ptr<LimitedStream> limited_stream(const Engine& engine) {
  return std::make_shared<LimitedStream>(std::static_pointer_cast<CpuDevice>(engine.device().shared_from_this()));
}

struct Result {
  std::vector<float> values;
  int steps = 0;       // of denoising that were done
  size_t largest = 0;  // piece of memory that the decoder asked for
  std::vector<std::string> warnings;
};

// Allows at most `limit` bytes in one allocation while the image is decoded.
Result run(Session& session, LimitedStream& stream, const Request& request, size_t limit = SIZE_MAX) {
  Result result;
  session.stream = stream.shared_from_this();
  session.log = Log([&](LogLevel level, const std::string& text) {
    if (level == LogLevel::Warning) result.warnings.push_back(text);
  });
  Progress progress;
  progress.step_done = [&](const StepDone&) { ++result.steps; };
  progress.report = [&](Phase phase, int, int) {
    stream.limit = phase == Phase::Decode ? limit : SIZE_MAX;
    if (phase != Phase::Decode) stream.largest = 0;
  };
  text_to_image(session, request, progress, [&](const Picture& p) { result.values = p.decoded.planes().values; });
  session.log = {};
  result.largest = stream.largest;
  return result;
}

TEST(DecodeWithoutMemory, KeepsTheLatentsAndDecodesInTiles) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto session = engine.open(short_text_model());
  const auto stream = limited_stream(engine);
  const Request request = request_of(320, 2);  // 20 positions a side
  const Result whole = run(*session, *stream, request);
  ASSERT_EQ(whole.steps, 2);
  ASSERT_TRUE(whole.warnings.empty());

  for (const auto tile : {int64_t{10}, kSmallestTile}) {
    session->decode_tile = tile;
    const Result asked = run(*session, *stream, request);
    ASSERT_LT(asked.largest, whole.largest);
    session->decode_tile = 0;
    const Result tiled = run(*session, *stream, request, asked.largest);
    EXPECT_EQ(tiled.steps, 2) << "nothing was denoised again";
    // The largest tiles that fit. On some CPUs both sizes need the same memory, so the larger one is kept.
    const int64_t kept = session->decode_tile;
    ASSERT_TRUE(kept == tile || kept == 10) << kept;
    ASSERT_EQ(tiled.warnings.size(), kept == 10 ? 1u : 2u);
    EXPECT_EQ(tiled.values, run(*session, *stream, request).values);
    EXPECT_NE(tiled.warnings[0].find("tiles of 160 pixels"), std::string::npos) << tiled.warnings[0];
    const Result again = run(*session, *stream, request, asked.largest);
    EXPECT_TRUE(again.warnings.empty()) << "the session keeps to tiles";
    EXPECT_EQ(again.values, tiled.values);
  }
}

TEST(DecodeWithoutMemory, FailsIfTheSmallestTilesDoNotFit) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto session = engine.open(short_text_model());
  const auto stream = limited_stream(engine);
  try {
    run(*session, *stream, request_of(256, 1), 4096);
    FAIL() << "it was decoded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::OutOfMemory);
  }
}

// A smooth image with one edge.
Planes scene(int width, int height) {
  Planes planes{width, height, {}};
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        planes.values.push_back(std::hypot(x - width / 2, y - height / 3) < 0.3 * height
                                    ? 0.8f - 0.5f * static_cast<float>(c)
                                    : 0.4f * std::sin(0.02f * static_cast<float>(x + c * y)));
  return planes;
}

struct Difference {
  double mean = 0, largest = 0;
};

// The difference of the pixels that two sets of latents decode to, in 8-bit steps.
Difference difference_of_pixels(const ModelSession& session, const Tensor& a, const Tensor& b, int64_t rows, int64_t columns) {
  const auto x = session.models.vae->decode(a, rows, columns).to_floats(),
             y = session.models.vae->decode(b, rows, columns).to_floats();
  Difference d;
  for (size_t i = 0; i < x.size(); ++i) {
    const double away = 127.5 * std::abs(std::clamp(x[i], -1.0f, 1.0f) - std::clamp(y[i], -1.0f, 1.0f));
    d.mean += away / static_cast<double>(x.size());
    d.largest = std::max(d.largest, away);
  }
  return d;
}

TEST(RunningOut, EncodingInTilesIsCloseToEncodingAtOnce) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto session =
      engine.open(locate_model({.model = test::pico_folder()}, {}), {}, {.transformer = false, .text_encoder = false});
  const Planes picture = scene(384, 320);
  const Tensor whole = encode_picture(*session, picture, {});
  for (const auto& [tile, mean, largest] : {std::tuple{16, 6.0, 60.0}, {8, 10.0, 60.0}}) {
    session->picture_cache.clear();
    session->decode_tile = tile;
    const Tensor tiled = encode_picture(*session, picture, {});
    ASSERT_EQ(tiled.shape(), whole.shape());
    const auto a = whole.to_floats(), b = tiled.to_floats();
    double square = 0, sum = 0, most = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      square += std::pow(a[i] - b[i], 2), sum += std::pow(a[i], 2);
      most = std::max<double>(most, std::abs(a[i] - b[i]));
    }
    const Difference pixels = difference_of_pixels(*session, whole, tiled, 20, 24);
    fmt::print("encoded in tiles of {}: latents {:.4f} of their norm, {:.2f} at most; pixels {:.2f} on average, {:.1f} at most\n",
               16 * tile, std::sqrt(square / sum), most, pixels.mean, pixels.largest);
    EXPECT_GT(square, 0) << "tiles were not used";
    EXPECT_LT(pixels.mean, mean);
    EXPECT_LT(pixels.largest, largest);
  }
}

TEST(RunningOut, AnImageThatDoesNotFitIsEncodedInTiles) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto session = engine.open(short_text_model());
  const auto stream = limited_stream(engine);
  session->stream = stream;
  std::vector<std::string> warnings;
  session->log = Log([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  const Planes picture = scene(640, 256);
  encode_picture(*session, picture, {});
  stream->limit = stream->largest / 10 * 9;
  session->picture_cache.clear();
  EXPECT_EQ(encode_picture(*session, picture, {}).shape(), (Shape{1, 40 * 16, 128}));
  // Half of the side after each failure. How many it takes depends on what the CPU's convolutions need.
  ASSERT_TRUE(session->decode_tile == kDecodeTile || session->decode_tile == kDecodeTile / 2) << session->decode_tile;
  ASSERT_EQ(warnings.size(), session->decode_tile == kDecodeTile ? 1u : 2u);
  EXPECT_NE(warnings[0].find("in tiles"), std::string::npos);
}

}  // namespace
}  // namespace flux2
