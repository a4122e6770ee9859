#pragma once

#include "tensor/kernels.h"

namespace flux2::gemm {

// Whether attention_of_one_query() computes this: one query in f32 that sees all keys, without anything for a gradient.
bool is_one_query(const AttentionArgs& args);

// A language model that writes has one query at a time: keys and values are read once where they lie, in f32, without packing.
void attention_of_one_query(const AttentionArgs& args);

}  // namespace flux2::gemm
