#pragma once

#include <array>
#include <vector>

#include "image/image.h"
#include "model/tiny_decoder.h"
#include "pipeline/progress.h"
#include "pipeline/session.h"

namespace flux2 {

// A linear estimate of the colours of latents: rgb = bias + Σ factors[c] · latent c, in [−1, 1], for every 8 × 8 pixels.
struct LatentColours {
  std::vector<std::array<float, 3>> factors;  // by channel of the unpacked latents
  std::array<float, 3> bias = {};
};

// Fitted to an autoencoder by least squares: synthetic images are encoded (or, if it has no encoder, random latents are decoded).
LatentColours fit_latent_colours(const Vae& vae, Session& session);

// An image of 2·columns × 2·rows pixels from tokens [1, rows · columns, 128].
Image linear_preview(const Vae& vae, const LatentColours& colours, const Tensor& tokens, int64_t rows, int64_t columns);
// The same decoded in full: 16 pixels a position.
Image decoded_preview(const Vae& vae, const Tensor& tokens, int64_t rows, int64_t columns);

// The same by a tiny decoder, at most kTinyPreview pixels a side: larger latents are averaged first.
constexpr int64_t kTinyPreview = 512;
Image tiny_preview(const TinyDecoder& decoder, Stream& stream, const Tensor& tokens, int64_t rows, int64_t columns);

// A preview of the first image of the batch: the clean latents that the step predicts, tokens [1, I, 128].
Tensor foreseen_picture(const StepDone& step);

}  // namespace flux2
