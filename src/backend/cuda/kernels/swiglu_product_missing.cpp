#include "backend/cuda/kernels/parts.h"

// Built where sm_90a is not among the architectures.
namespace flux2::cuda {

bool swiglu_product_fits(const SwigluProductArgs&) { return false; }
bool swiglu_product_pays(const SwigluProductArgs&) { return false; }
void swiglu_product(const SwigluProductArgs&) {}

}  // namespace flux2::cuda
