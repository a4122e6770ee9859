#include "pipeline/decode.h"

#include "base/error.h"
#include "image/pixels.h"

namespace flux2 {

namespace {

const char* fault_of(const Planes& p) {
  if (has_nan(p.values)) return "holds values that are not numbers";
  if (is_all_black(to_rgb8(p.values, p.height, p.width, Rounding::Trunc))) return "is black all over";
  return nullptr;
}

}  // namespace

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
