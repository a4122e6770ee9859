#pragma once

#include <string>

#include "engine/engine.h"
#include "tests/support/op_cases.h"
#include "weights/weight_source.h"

namespace flux2 {

// A file of reference values (tests/golden/README.md).
class Golden {
 public:
  explicit Golden(const std::string& name);

  bool has(const std::string& name) const { return source_->find(name) != nullptr; }
  Tensor operator[](const std::string& name) const { return source_->open(name); }  // host
  Tensor on(Stream& stream, const std::string& name, DType dtype = DType::F32) const;
  std::vector<std::string> names() const { return source_->names(); }

 private:
  std::shared_ptr<const WeightSource> source_;
};

std::string golden_path(const std::string& name);

// The parts of tests/golden/tiny, or another transformer file of it.
ModelFiles tiny_model(const std::string& transformer = "flux-2-klein-tiny.safetensors");

// The same with room for a short prompt: where nothing depends on the length of the text, a request takes a fraction of the time.
constexpr int kShortText = 32;
ModelFiles short_text_model(const std::string& transformer = "flux-2-klein-tiny.safetensors");

// [C, H, W] ↔ [1, H, W, C].
Tensor channels_last(const Tensor& chw);
std::vector<double> channels_first(const Tensor& bhwc);

}  // namespace flux2
