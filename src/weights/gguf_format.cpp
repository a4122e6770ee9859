#include "weights/gguf_format.h"

namespace flux2 {

namespace {

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, DType::F32},
    {1, "F16", 1, 2, DType::F16},
    {2, "Q4_0", 32, 18, DType::Q4_0},
    {3, "Q4_1", 32, 20, DType::Q4_1},
    {4, "Q4_2", 0, 0},
    {5, "Q4_3", 0, 0},
    {6, "Q5_0", 32, 22, DType::Q5_0},
    {7, "Q5_1", 32, 24, DType::Q5_1},
    {8, "Q8_0", 32, 34, DType::Q8_0},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84, DType::Q2_K},
    {11, "Q3_K", 256, 110, DType::Q3_K},
    {12, "Q4_K", 256, 144, DType::Q4_K},
    {13, "Q5_K", 256, 176, DType::Q5_K},
    {14, "Q6_K", 256, 210, DType::Q6_K},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18, DType::IQ4_NL},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136, DType::IQ4_XS},
    {24, "I8", 1, 1, DType::I8},
    {25, "I16", 1, 2, DType::I16},
    {26, "I32", 1, 4, DType::I32},
    {27, "I64", 1, 8, DType::I64},
    {28, "F64", 1, 8, DType::F64},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, DType::BF16},
    {31, "Q4_0_4_4", 0, 0},
    {32, "Q4_0_4_8", 0, 0},
    {33, "Q4_0_8_8", 0, 0},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4", 0, 0},
    {37, "IQ4_NL_4_8", 0, 0},
    {38, "IQ4_NL_8_8", 0, 0},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 0, 0},
    {42, "Q2_0", 0, 0},
};

}  // namespace

const GgmlType* ggml_type(uint32_t id) { return id < std::size(kTypes) ? &kTypes[id] : nullptr; }

const GgmlType* ggml_type_of(DType dtype) {
  for (const GgmlType& t : kTypes)
    if (t.dtype == dtype) return &t;
  return nullptr;
}

std::optional<uint32_t> gguf_file_type(DType dtype) {
  switch (dtype) {
    case DType::F32: return 0;
    case DType::F16: return 1;
    case DType::Q4_0: return 2;
    case DType::Q4_1: return 3;
    case DType::Q8_0: return 7;
    case DType::Q5_0: return 8;
    case DType::Q5_1: return 9;
    case DType::Q2_K: return 10;
    case DType::Q3_K: return 12;
    case DType::Q4_K: return 15;
    case DType::Q5_K: return 17;
    case DType::Q6_K: return 18;
    case DType::IQ4_NL: return 25;
    case DType::IQ4_XS: return 30;
    case DType::BF16: return 32;
    default: return std::nullopt;
  }
}

}  // namespace flux2
