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

// The values of a weight [N, K] whose stored bytes are codes that mean nothing without the tensors beside them.
class QuantisedValues {
 public:
  virtual ~QuantisedValues() = default;

  // Rows [begin, end) one after the other. May be called from several threads.
  virtual void rows(int64_t begin, int64_t end, float* out) const = 0;

  // The block type that holds exactly these values in little memory, and row `row` in it; none where there is no such type.
  virtual std::optional<DType> block_type() const { return std::nullopt; }
  virtual void blocks(int64_t row, std::byte* out) const;
};

// Finds weights that are quantised with other tensors beside them and gives each its values, real shape and the dtype BF16 as
// which it is opened; the tensors it took along leave the list. Understood, weight by weight and whatever the rest of the file
// is:
//   F8 with scales for blocks, groups or columns   Qwen3-FP8's weight_scale_inv, musubi's scale_weight
//   NVFP4                                          U8 with weight_scale and weight_scale_2, in both orders that exist
//   NF4 and FP4 of bitsandbytes                    U8 with absmax, also nested
//   int8, rotated                                  I8 with weight_scale and convrot in its descriptor
// F8 and I8 with one scale for the whole or for each row stay what they are (eight_bit_scales.h). Layers whose descriptor
// (comfy_quant) names a format we do not have lose their dtype, so that opening them says so. Throws BadFile when tensors that
// belong together do not fit.
void attach_quantised_values(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata);

class WeightSource;

// The values of a stored matrix that needs others to be understood: QuantisedValues, and F8 or I8 with one scale or one for each
// row beside it. Null when the stored elements are the values.
std::shared_ptr<const QuantisedValues> values_of(const WeightSource& source, const StoredTensor& tensor);

}  // namespace flux2
