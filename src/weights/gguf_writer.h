#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// The metadata of a GGUF file.
struct GgufPair {
  std::string key;
  std::variant<std::string, uint32_t, float, bool, std::vector<std::string>, std::vector<int32_t>> value;
};

struct GgufDeclared {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;  // outermost axis first, as everywhere
};

// The bytes of a GGUF file in front of its data, for tensors that follow in this order, each padded by gguf_padding().
std::string gguf_header(const std::vector<GgufPair>& pairs, const std::vector<GgufDeclared>& tensors);

// Zero bytes between a tensor of that many bytes and the next.
uint64_t gguf_padding(uint64_t tensor_bytes);

// Writes contiguous host tensors into one file, in their order.
void save_gguf(const std::filesystem::path& path, const std::vector<GgufPair>& pairs,
               const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace flux2
