#pragma once

#include <functional>
#include <map>
#include <string>

#include "nn/parameter.h"
#include "train/log/checkpoint_file.h"
#include "weights/named_weights.h"

namespace flux2 {

// The tensors of a network by their canonical names, in the shapes that files have.
std::map<std::string, Tensor> file_tensors(const std::function<void(const ParameterVisitor&)>& visit);

// A part of a model as its source holds it, with these tensors in place of the source's: names, shapes and everything that the
// network does not load stay as they are. A GGUF source gives the names of safetensors files.
NamedTensors in_source_layout(const NamedWeights& source, const std::map<std::string, Tensor>& changed);

}  // namespace flux2
