#include "pipeline/decode.h"

#include "base/error.h"
#include "image/pixels.h"

namespace flux2 {

namespace {

const char* fault_of(const Planes& p) {
  if (has_nan(p.values)) return "holds values that are not numbers";
  if (would_be_black(p.values)) return "is black all over";
  return nullptr;
}

}  // namespace

Tensor decode_tokens(const std::shared_ptr<const Vae>& vae, Session& session, const Tensor& tokens, int64_t rows,
                     int64_t columns) {
  const Tensor latents = vae->latents_of(tokens, rows, columns);
  return captured(session, vae, {latents}, latents.dtype(), {tokens.dim(0), 16 * rows, 16 * columns, 3},
                  [&](std::span<const Tensor> in) { return vae->decode_latents(in[0]); });
}

Planes checked_decode(const std::function<Planes()>& decode, const std::function<Planes()>& decode_in_f32, const Log& log,
                      bool& retried) {
  retried = false;
  Planes picture = decode();
  const char* fault = fault_of(picture);
  if (!fault) return picture;
  if (decode_in_f32) {
    log.warn("the decoded picture {}; decoding it again in f32", fault);
    retried = true;
    picture = decode_in_f32();
    fault = fault_of(picture);
    if (!fault) return picture;
  }
  // Black is a picture somebody may have asked for; not-a-number never is.
  if (has_nan(picture.values))
    throw Error(ErrorCode::Internal, "the decoded picture holds values that are not numbers",
                "try --profile exact; if it stays, the model file is probably damaged");
  log.warn("the picture {}", fault);
  return picture;
}

}  // namespace flux2
