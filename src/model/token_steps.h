#pragma once

#include <memory>

#include "model/language_model.h"

namespace flux2 {

enum class CaptureSteps { Never, WherePreferred, Always };

// Reads a text on, one token at a time, after the prompt is in the cache. On devices that prefer graphs a step is captured and
// replayed: launching its hundreds of small kernels one by one would take longer than the kernels themselves.
class TokenSteps {
 public:
  struct Options {
    DType activations = DType::F32;
    CaptureSteps capture = CaptureSteps::WherePreferred;
    BeforeBlock before_layer = {};  // called before every layer, or before every step that is captured
  };
  // While steps are captured, nothing else may add tokens to the cache.
  TokenSteps(const LanguageModel& model, Stream& stream, KeyCache& cache, Options options);
  TokenSteps(const TokenSteps&) = delete;
  TokenSteps& operator=(const TokenSteps&) = delete;

  // The scores F32 [vocab] of the token after this one. The next call overwrites them.
  Tensor scores_after(int32_t id);

 private:
  Tensor replayed(int32_t id);
  void make_room(int64_t rows);

  const LanguageModel& model_;
  Stream& stream_;
  KeyCache& cache_;
  Options options_;
  bool captures_;

  // What a captured step reads and writes.
  Rope positions_;      // of the whole cache
  Tensor token_;        // I32 [2]: id, position
  Tensor visible_;      // I32 [1, 1 + capacity]: 1 for rows of the cache that hold a token
  int64_t rows_ = 0;    // of the cache that the captured step looks at
  int64_t length_ = 0;  // of the cache, as far as `visible_` knows
  Tensor scores_;       // F32 [vocab]
  std::unique_ptr<Graph> graph_;
};

}  // namespace flux2
