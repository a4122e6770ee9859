#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace flux2 {

struct StoredTensor;

// The values of a weight [N, K] whose stored bytes are codes that need other tensors (scales, tables) to be decoded.
class QuantisedValues {
 public:
  virtual ~QuantisedValues() = default;

  // Rows [begin, end) one after the other. May be called from several threads.
  virtual void rows(int64_t begin, int64_t end, float* out) const = 0;

  // The block type that holds exactly these values in little memory, and row `row` in it; none where there is no such type.
  virtual std::optional<DType> block_type() const { return std::nullopt; }
  virtual void blocks(int64_t row, std::byte* out) const;
};

// Finds weights that are quantised with the help of other tensors. Each gets its QuantisedValues, its real shape and the dtype
// BF16, in which it is opened; the tensors it uses are removed from the list. Each weight is detected separately, so a file may
// mix formats:
//   F8 with scales for blocks, groups or columns   Qwen3-FP8's weight_scale_inv, musubi's scale_weight
//   NVFP4                                          U8 with weight_scale and weight_scale_2, in both orders that exist
//   NF4 and FP4 of bitsandbytes                    U8 with absmax, also nested
//   int8, rotated                                  I8 with weight_scale and convrot in its descriptor
// F8 and I8 with one scale per tensor or per row are not changed (eight_bit_scales.h). Layers whose descriptor (comfy_quant)
// names an unsupported format lose their dtype, so opening them is an error. Throws BadFile if tensors that belong together do
// not fit.
void attach_quantised_values(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata);

class WeightSource;

// The values of a stored matrix that needs other tensors to be decoded: QuantisedValues, or F8 and I8 with one scale per tensor
// or per row. Null if the stored elements are the values.
std::shared_ptr<const QuantisedValues> values_of(const WeightSource& source, const StoredTensor& tensor);

}  // namespace flux2
