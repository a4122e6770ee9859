#pragma once

#include "model/decoder_config.h"
#include "model/flux2_config.h"
#include "model/vae.h"

namespace flux2 {

// Floating-point operations of one forward pass, a multiply and an add counting as two. Norms and activations, which
// cost memory traffic rather than arithmetic, are left out.

// One image; the projection of the text states, done once per prompt, is not part of a step. `others` is the number of tokens
// that are attended to but not computed: kept references. The last block is counted whole, although it leaves out what nobody
// reads (model/flux2_transformer.h): at most one block's share.
double step_flop(const Flux2Config& config, int64_t text_tokens, int64_t image_tokens, int64_t others = 0);

// The part of step_flop() and text_flop() that is attention: it grows with the square of the tokens and runs at a rate of its
// own.
double step_attention_flop(const Flux2Config& config, int64_t tokens, int64_t others = 0);
double text_attention_flop(const DecoderConfig& config, int64_t tokens);

// One step of training adapters: forward, the gradient of every input (none of the weights), and with `checkpointed` the forward
// again. The adapters' own products, about 1 %, are left out.
double lora_step_flop(const Flux2Config& config, int64_t text_tokens, int64_t image_tokens, bool checkpointed);

// The layers up to the last state read; attention counted as if it were not causal.
double text_flop(const DecoderConfig& config, int64_t tokens);

double decode_flop(const Vae& vae, int64_t width, int64_t height);
double encode_flop(const Vae& vae, int64_t width, int64_t height);

}  // namespace flux2
