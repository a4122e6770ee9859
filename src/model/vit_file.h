#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"
#include "nn/parameter.h"
#include "weights/weight_source.h"

namespace flux2 {

// What the files of vision transformers (as transformers writes them) have in common: vit_classifier.h and clip_vision.h.

// A JSON file beside the weights; an empty object if there is none.
struct JsonBeside {
  JsonBeside(const WeightSource& weights, const char* name);

  // Continues in the object under this key, if there is one.
  void enter(const char* key);
  // A value that is absent or null is `otherwise`. Throws BadFile, naming the key, for anything but a number of this range.
  double number(const char* key, double otherwise, double low, double high) const;
  // The same for three numbers, one for each channel.
  void colours(const char* key, std::array<float, 3>& values, double low) const;

  std::filesystem::path path;
  Json json = Json::object();
};

// The shape of a tensor that the geometry is read from. Throws BadFile if it is missing, has another number of axes, or has an
// extent outside 1 … most.
struct SizeRule {
  int rank;
  int64_t most;
};
Shape size_tensor(const WeightSource& weights, const std::string& name, const SizeRule& rule, const std::string& advice);

// The side of the square images that a network was made for, from the shape […, tokens, width] of its positions: one token for
// the class and a square of patches. Throws Incompatible for other numbers of tokens and for sides above `most_side`.
struct PositionRule {
  std::string name;  // of the tensor
  Shape shape;
  int64_t patch, most_side;
};
int64_t image_side(const WeightSource& weights, const PositionRule& positions, const std::string& advice);

// The number of heads that config.json states, else one for every 64 values. Throws Incompatible if it does not divide `hidden`.
int64_t head_count(const WeightSource& weights, const JsonBeside& config, int64_t hidden, const std::string& advice);

// One more than the largest N of names like "PREFIX.N.…": a layer with missing tensors counts as well. At most 1000.
int64_t count_layers(const WeightSource& weights, const std::string& prefix);

// Throws BadFile, naming up to ten tensors that are missing, have another shape than the network's, or are no floats. `what` is
// "the classifier".
void check_vit(const WeightSource& weights, const std::function<void(const ParameterVisitor&)>& visit, const std::string& what,
               const std::string& advice);

// Opens every tensor in F32, in the mapped file if it is stored so; convolutions with channels last.
void load_vit_tensors(const WeightSource& weights, const std::function<void(const ParameterVisitor&)>& visit, Stream& stream);

}  // namespace flux2
