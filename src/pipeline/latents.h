#pragma once

#include <cstdint>
#include <vector>

#include "image/image.h"
#include "nn/rope_table.h"
#include "tensor/tensor.h"

namespace flux2 {

struct Vae;

// Images of [C, rows, columns] values as tokens [rows·columns, C] and back, on the host.
std::vector<float> to_tokens(const std::vector<float>& planes, int64_t channels);
std::vector<float> to_planes(const std::vector<float>& tokens, int64_t channels);

// The latents of images of one size: [images, 128, rows, columns], normalised.
std::vector<float> encoded_images(const Vae& vae, Stream& stream, DType activations, const std::vector<Image>& images);

// Normalised latents [128, rows, columns] enlarged to [128, to_rows, to_columns]: unpacked and with the normalisation undone,
// interpolated (bicubic), packed and normalised again.
std::vector<float> enlarged_latents(const Vae& vae, const std::vector<float>& latents, int64_t rows, int64_t columns,
                                    int64_t to_rows, int64_t to_columns);

// Positions in the order the transformer sees tokens: text slots, then the image in raster order.
std::vector<TokenPosition> text_positions(int64_t length);
std::vector<TokenPosition> picture_positions(int64_t rows, int64_t columns, int32_t t = 0);
// Tokens of image prompts stand behind all references: t = 10 · (references + 1) for the first image, 10 more for each further
// one; w counts the tokens of an image.
std::vector<TokenPosition> image_prompt_positions(int64_t references, int64_t images, int64_t tokens);

}  // namespace flux2
