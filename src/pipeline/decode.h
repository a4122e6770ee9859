#pragma once

#include <functional>

#include "base/log.h"
#include "pipeline/decoded_picture.h"
#include "pipeline/session.h"

namespace flux2 {

// The image [1, H, W, 3] of tokens [1, rows · columns, 128]; captured where that is faster, so the next call may overwrite it.
Tensor decode_tokens(const std::shared_ptr<const Vae>& vae, Session& session, const Tensor& tokens, int64_t rows, int64_t columns,
                     const BeforeBlock& before_block = {});

// Decodes. If the result contains NaN or is completely black, decodes again in f32 (if possible) and logs a warning. Throws if
// the result is still broken. `retried` tells whether the second attempt was needed.
DecodedPicture checked_decode(const std::function<DecodedPicture()>& decode, const std::function<DecodedPicture()>& decode_in_f32,
                              const Session& session, bool& retried);

// The error for values that are not numbers although everything that went in was: BadFile with the file and the tensor if some
// weight is not a number, otherwise Incompatible.
Error damaged_model(const Session& session, const std::string& what);

}  // namespace flux2
