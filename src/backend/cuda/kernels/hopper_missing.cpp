#include "backend/cuda/kernels/parts.h"

// Built where sm_90a is not among the architectures.
namespace flux2::cuda {

bool swiglu_product_fits(const SwigluProductArgs&) { return false; }
bool swiglu_product_pays(const SwigluProductArgs&) { return false; }
void swiglu_product(const SwigluProductArgs&) {}

bool adapter_gradient_fits(const AdapterGradArgs&) { return false; }
bool adapter_gradient_pays(const AdapterGradArgs&) { return false; }
void adapter_gradient(const AdapterGradArgs&) {}

bool has_eight_bit_attention() { return false; }
bool eight_bit_attention_fits(const AttentionArgs&) { return false; }
void eight_bit_attention(const AttentionArgs&) {}

}  // namespace flux2::cuda
