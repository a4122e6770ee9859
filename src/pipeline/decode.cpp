#include "pipeline/decode.h"

#include "base/error.h"

namespace flux2 {

namespace {

const char* fault_of(const DecodedPicture& p) {
  if (p.has_nan()) return "holds values that are not numbers";
  if (p.is_black()) return "is black all over";
  return nullptr;
}

}  // namespace

Tensor decode_tokens(const std::shared_ptr<const Vae>& vae, Session& session, const Tensor& tokens, int64_t rows, int64_t columns,
                     const BeforeBlock& before_block) {
  const Tensor latents = vae->latents_of(tokens, rows, columns);
  return captured(session, vae, {latents}, latents.dtype(), {tokens.dim(0), 16 * rows, 16 * columns, 3},
                  [&](std::span<const Tensor> in) {
                    return vae->decode_latents(in[0], {}, captures(session) ? BeforeBlock{} : before_block);
                  });
}

Error damaged_model(const Session& session, const std::string& what) {
  const std::string damage = session.find_damage ? session.find_damage() : "";
  if (!damage.empty())
    return Error(ErrorCode::BadFile, what + ": " + damage,
                 Hint("the file is damaged; download it again, or check it with {0}", {run_command("models verify")}));
  return Error(
      ErrorCode::Incompatible, what,
      Hint("try {0}; if that does not help, the model's files do not belong together", {set_option("profile", "exact")}));
}

DecodedPicture checked_decode(const std::function<DecodedPicture()>& decode, const std::function<DecodedPicture()>& decode_in_f32,
                              const Session& session, bool& retried) {
  const Log& log = session.log;
  retried = false;
  DecodedPicture picture = decode();
  const char* fault = fault_of(picture);
  if (!fault) return picture;
  if (decode_in_f32) {
    log.warn("the decoded image {}; decoding it again in f32", fault);
    retried = true;
    picture = decode_in_f32();
    fault = fault_of(picture);
    if (!fault) return picture;
  }
  // A black image may be what the user asked for; NaN never is.
  if (picture.has_nan()) throw damaged_model(session, "the decoded image contains values that are not numbers");
  log.warn("the image {}", fault);
  return picture;
}

}  // namespace flux2
