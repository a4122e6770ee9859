#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace flux2 {

// The constants of GGUF files. A file lists axes from the innermost to the outermost; all other code lists them from the
// outermost.
inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr uint32_t kGgufVersion = 3;  // what we write; 2 has the same layout
inline constexpr uint64_t kGgufAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr std::string_view kGgufShapePrefix = "comfy.gguf.orig_shape.";

enum class GgufValueType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

// A tensor type by its number in files. `dtype` is empty for types we do not compute with: those that need code books,
// those withdrawn, those that exist in memory only.
struct GgmlType {
  uint32_t id;
  const char* name;
  int block_elements, block_bytes;  // 0 where we do not know the layout
  std::optional<DType> dtype = {};
};

const GgmlType* ggml_type(uint32_t id);     // null for an unassigned number
const GgmlType* ggml_type_of(DType dtype);  // null if GGUF files cannot hold it

// The number that llama.cpp and ComfyUI use for a file whose weights are mostly of this type (`general.file_type`).
std::optional<uint32_t> gguf_file_type(DType dtype);

}  // namespace flux2
