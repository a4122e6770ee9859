#include "pipeline/references.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sha256.h"
#include "nn/timestep.h"
#include "ops/view.h"
#include "pipeline/latents.h"
#include "pipeline/tiles.h"

namespace flux2 {

namespace {

constexpr int32_t kTimeOffset = 10;  // of the first reference, and between two

std::string key_of(const Planes& picture) {
  return fmt::format("{}x{} {}", picture.width, picture.height, sha256(std::as_bytes(std::span(picture.values))));
}

void record(Trace& trace, size_t index, const Planes& picture, const Tensor& latents) {
  trace.add_floats(fmt::format("refs.{}.image", index), picture.values, {3, picture.height, picture.width});
  const int64_t channels = latents.dim(2);
  trace.add_floats(fmt::format("refs.{}.latents", index), to_planes(latents.to_floats(), channels),
                   {channels, picture.height / 16, picture.width / 16});
}

}  // namespace

namespace {

// Samples [3, height, width] of part of a picture as [1, rows, columns, 3] on the device.
Tensor pixels_of(const Session& session, const Planes& picture, const Tile& tile) {
  const int64_t width = 16 * tile.columns, height = 16 * tile.rows;
  std::vector<float> values(static_cast<size_t>(3 * width * height));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        values[static_cast<size_t>(3 * (y * width + x) + c)] =
            picture.values[static_cast<size_t>((c * picture.height + 16 * tile.row + y) * picture.width + 16 * tile.column + x)];
  return Tensor::from<float>(*session.stream, session.activations, {1, height, width, 3}, values);
}

// At once or tile by tile, as the session says.
Tensor encode_now(const Session& session, const Planes& picture, const Progress& progress) {
  const Vae& vae = *session.models.vae;
  const BeforeBlock before_block = progress.before_block();
  const int64_t rows = picture.height / 16, columns = picture.width / 16, channels = vae.config.packed_channels();
  if (session.decode_tile == 0 || std::max(rows, columns) <= session.decode_tile)
    return vae.encode(pixels_of(session, picture, {0, 0, rows, columns}), {}, before_block);
  const auto tokens = join_token_tiles(
      rows, columns, channels, tiles_of(rows, columns, session.decode_tile),
      [&](const Tile& tile) { return vae.encode(pixels_of(session, picture, tile), {}, before_block).to_floats(); });
  return Tensor::from<float>(*session.stream, DType::F32, {1, rows * columns, channels}, tokens);
}

}  // namespace

Tensor encode_picture(Session& session, const Planes& picture, const Progress& progress) {
  if (!session.models.vae->config.has_encoder)
    throw Error(ErrorCode::Incompatible, "this autoencoder file has only the decoder, so it cannot read images",
                Hint("choose a file with an encoder with {0}", {set_option("vae")}));
  const std::string key = key_of(picture);
  if (const Tensor found = session.picture_cache.find(key); found.defined()) return found;
  for (;;) {
    try {
      const Tensor latents = encode_now(session, picture, progress);
      session.picture_cache.add(key, latents);
      return latents;
    } catch (const Error& e) {
      const int64_t tile = smaller_tile(session.decode_tile, picture.height / 16, picture.width / 16);
      if (e.code() != ErrorCode::OutOfMemory || tile == 0) throw;
      session.log.warn("{}; encoding the image again in tiles of {} pixels", e.what(), 16 * tile);
      session.decode_tile = tile;
      session.captured_work.clear();  // each recorded run keeps the memory that it needed
    }
  }
}

ReferenceTokens encode_references(Session& session, const Request& request, const Progress& progress) {
  ReferenceTokens result;
  struct Listed {
    const Planes& picture;
    int region;
    size_t place;  // among the references that its region sees
  };
  std::vector<Listed> all;
  for (size_t i = 0; i < request.references.size(); ++i) all.push_back({*request.references[i], -1, i});
  for (size_t r = 0; r < request.regions.size(); ++r)
    for (size_t i = 0; i < request.regions[r].references.size(); ++i)
      all.push_back({*request.regions[r].references[i], static_cast<int>(r), request.references.size() + i});
  if (all.empty()) return result;
  const auto count = static_cast<int>(all.size());
  std::vector<Tensor> tokens;
  progress.at(Phase::EncodeReferences, 0, count);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [picture, region, place] = all[i];
    tokens.push_back(encode_picture(session, picture, progress));
    result.list += key_of(picture) + "\n";
    const auto places = picture_positions(picture.height / 16, picture.width / 16, kTimeOffset * static_cast<int32_t>(place + 1));
    result.positions.insert(result.positions.end(), places.begin(), places.end());
    result.regions.insert(result.regions.end(), places.size(), region);
    if (session.trace) record(*session.trace, i, picture, tokens.back());
    session.stream->wait();
    progress.at(Phase::EncodeReferences, static_cast<int>(i + 1), count);
  }
  result.tokens = concat(tokens, 1);
  return result;
}

namespace {

void forget_references(Session& session) {
  // Captured steps still refer to the old memory.
  std::erase_if(session.captured_work, [&](const CapturedWork& work) { return work.model == session.reference_memory; });
  session.reference_memory = nullptr;
}

}  // namespace

int64_t ReferenceMemory::bytes() const {
  int64_t sum = 0;
  for (const KeyValue& block : keys) sum += block.k.bytes() + block.v.bytes();
  return sum;
}

void limit_reference_memory(Session& session, int64_t bytes) {
  if (session.reference_memory && session.reference_memory->bytes() > bytes) forget_references(session);
}

std::shared_ptr<const ReferenceMemory> remember_references(const std::shared_ptr<const Flux2Transformer>& transformer,
                                                           Session& session, const Request& request,
                                                           const ReferenceTokens& references, const BeforeBlock& before_block) {
  auto& kept = session.reference_memory;
  const double guidance_value = transformer->config.guidance ? request.guidance : 0;
  const bool same =
      kept && kept->list == references.list && kept->guidance == guidance_value && kept->transformer.lock() == transformer;
  ++(same ? session.reference_hits : session.reference_misses);
  if (same) return kept;
  forget_references(session);

  const auto sinusoid = [&](double value) {
    const float argument = time_argument(static_cast<float>(value), request.time_rounding);
    return timestep_embedding(*session.stream, std::vector<float>{argument}, session.activations);
  };
  const Tensor guidance = transformer->config.guidance ? sinusoid(guidance_value) : Tensor();
  const Tensor vec = transformer->condition(sinusoid(0.0), guidance);
  const Rope rope = flux2_rope(*session.stream, references.positions);
  kept = std::make_shared<const ReferenceMemory>(
      ReferenceMemory{transformer, references.list, guidance_value,
                      transformer->reference_keys(references.tokens.cast(session.activations), vec, rope, before_block)});
  return kept;
}

}  // namespace flux2
