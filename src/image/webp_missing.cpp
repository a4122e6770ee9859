#include "base/error.h"
#include "image/codecs.h"

namespace flux2 {

namespace {

[[noreturn]] void missing() {
  throw Error(ErrorCode::Incompatible, "this build has no WebP", "use PNG or JPEG, or rebuild with libwebp");
}

}  // namespace

bool webp_available() { return false; }
Image decode_webp(std::span<const std::byte>, const ImageLimits&) { missing(); }
std::vector<std::byte> encode_webp(const Image&, const ImageMetadata&, int) { missing(); }

}  // namespace flux2
