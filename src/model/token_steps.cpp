#include "model/token_steps.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace flux2 {

namespace {

// A step looks at a multiple of this many rows of the cache, so that it is captured anew only now and then.
constexpr int64_t kRowsAtOnce = 256;

}  // namespace

TokenSteps::TokenSteps(const LanguageModel& model, Stream& stream, KeyCache& cache, Options options)
    : model_(model),
      stream_(stream),
      cache_(cache),
      options_(std::move(options)),
      // Layers that are streamed have no fixed addresses.
      captures_(!model.schedule && (options_.capture == CaptureSteps::Always ||
                                    (options_.capture == CaptureSteps::WherePreferred && stream.device().prefers_graphs()))) {}

Tensor TokenSteps::scores_after(int32_t id) {
  if (captures_) return replayed(id);
  return model_.scores(Tensor::from<int32_t>(stream_, DType::I32, {1, 1}, std::span(&id, 1)), cache_, options_.activations,
                       options_.before_layer);
}

// The captured step sees the rows of the cache up to `rows`.
void TokenSteps::make_room(int64_t rows) {
  const int64_t capacity = cache_.capacity();
  if (!token_.defined()) {
    const DecoderConfig& c = model_.config.decoder;
    positions_ = text_rope(stream_, capacity, c.head_dim, c.rope_theta);
    visible_ = Tensor::empty(stream_, DType::I32, {1, 1 + capacity});
    visible_.fill(0);
    visible_.narrowed(1, 0, 1 + cache_.length()).fill(1);  // the first row is that of the token itself
    scores_ = Tensor::empty(stream_, DType::F32, {c.vocab});
    cache_.clear_unused();
    length_ = cache_.length();
    token_ = Tensor::empty(stream_, DType::I32, {2});  // the last one: it says that all of them are there
  }
  if (rows <= rows_) return;
  rows_ = std::min((rows + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce, 1 + capacity);
  graph_.reset();
}

Tensor TokenSteps::replayed(int32_t id) {
  if (options_.before_layer) options_.before_layer();
  require(cache_.length() < cache_.capacity(), "a key cache for {} tokens is full", cache_.capacity());
  make_room(1 + cache_.length());
  require(cache_.length() == length_, "the key cache has {} tokens instead of {}: others were added between two captured steps",
          cache_.length(), length_);
  const std::array<int32_t, 2> token = {id, static_cast<int32_t>(cache_.length())};
  stream_.upload(token_.raw(), token.data(), sizeof token);
  if (graph_) graph_->replay();
  else
    graph_ = stream_.capture([this] {
      scores_.copy_from(model_.staged_scores(token_, positions_, visible_.narrowed(1, 0, rows_), cache_, options_.activations));
    });
  visible_.narrowed(1, 1 + cache_.length(), 1).fill(1);
  cache_.advance_staged();
  ++length_;
  return scores_;
}

}  // namespace flux2
