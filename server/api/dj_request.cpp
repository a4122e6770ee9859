#include "server/api/dj_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/picture_size.h"
#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr int64_t kMostSide = 2048;
constexpr std::string_view kCrockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kDjMark = "dj-flux2", kDjNetwork = " realesrgan";
constexpr size_t kIdLetters = 26, kTokenLetters = 32;

[[noreturn]] void dj_invalid(const char* name, const std::string& why) {
  throw HttpError(422, "invalid_value", fmt::format("{}: {}", name, why), name);
}

const Json* dj_member(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> dj_integer(const Json& body, const char* name) {
  const Json* value = dj_member(body, name);
  if (!value) return std::nullopt;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{1} << 62))
    dj_invalid(name, "must be a whole number");
  return value->get<int64_t>();
}

std::optional<std::string> dj_text(const Json& body, const char* name) {
  const Json* value = dj_member(body, name);
  if (!value) return std::nullopt;
  if (!value->is_string()) dj_invalid(name, "must be a string");
  return value->get<std::string>();
}

// Digits of one alphabet as those of another whose digits have other widths, most significant first. The first digit may carry
// fewer bits.
std::string in_digits(std::string_view text, std::string_view from, int from_bits, std::string_view to, int to_bits,
                      size_t letters) {
  std::string out(letters, to[0]);
  for (size_t bit = 0; bit < letters * static_cast<size_t>(to_bits); ++bit) {  // from the least significant one
    const size_t source = bit / static_cast<size_t>(from_bits);
    if (source >= text.size()) break;
    const size_t digit = from.find(text[text.size() - 1 - source]);
    if ((digit >> (bit % static_cast<size_t>(from_bits)) & 1) == 0) continue;
    char& target = out[letters - 1 - bit / static_cast<size_t>(to_bits)];
    target = to[to.find(target) | size_t{1} << (bit % static_cast<size_t>(to_bits))];
  }
  return out;
}

void read_dj_size(const Json& body, Json& native) {
  const auto width = dj_integer(body, "width"), height = dj_integer(body, "height");
  if (!width && !height) return;
  const int64_t w = width.value_or(height.value_or(0)), h = height.value_or(w);
  if (w > kMostSide || h > kMostSide)
    throw HttpError(400, "invalid_value", fmt::format("Width and height may be at most {}.", kMostSide), "width");
  try {
    if (w < 1 || h < 1) fail(ErrorCode::InvalidArgument, "width and height must be positive");
    const PictureSize size = valid_picture_size({static_cast<int>(w), static_cast<int>(h)}, false, Log());
    native["width"] = size.width;
    native["height"] = size.height;
  } catch (const Error& e) {
    throw HttpError(400, "invalid_value", e.what(), "width");
  }
}

void read_dj_images(const Json& body, DjRequest& request) {
  const Json* given = dj_member(body, "input_image_base64");
  if (!given) return;
  for (const Json& image : given->is_array() ? *given : Json::array({*given})) {
    if (!image.is_string()) dj_invalid("input_image_base64", "must be a string or a list of texts");
    if (!image.get_ref<const std::string&>().empty()) request.images.push_back(image.get<std::string>());
  }
}

void read_dj_upscale(const Json& body, DjRequest& request) {
  const auto factor = dj_integer(body, "upscale");
  const std::string method = dj_text(body, "upscale_method").value_or("lanczos");
  if (method != "lanczos" && method != "realesrgan") dj_invalid("upscale_method", "must be lanczos or realesrgan");
  if (!factor) return;
  if (*factor != 2 && *factor != 4) dj_invalid("upscale", "must be 2 or 4");
  request.upscale = static_cast<int>(*factor);
  request.upscale_network = method == "realesrgan";
}

}  // namespace

DjRequest parse_dj_request(const Json& body) {
  DjRequest request;
  const auto prompt = dj_text(body, "prompt");
  if (!prompt || trimmed(*prompt).empty()) dj_invalid("prompt", "is missing");
  request.native["prompt"] = *prompt;
  request.model = dj_text(body, "model").value_or("");
  read_dj_size(body, request.native);
  if (const auto steps = dj_integer(body, "steps")) request.native["steps"] = *steps;
  if (const Json* guidance = dj_member(body, "guidance")) {
    if (!guidance->is_number()) dj_invalid("guidance", "must be a number");
    request.native["guidance"] = *guidance;
  }
  if (const auto seed = dj_integer(body, "seed")) request.native["seed"] = *seed;
  read_dj_images(body, request);
  read_dj_upscale(body, request);
  return request;
}

void apply_dj_model_rules(DjRequest& request, const ModelFiles& model) {
  if (model.distilled) request.native.erase("guidance");
}

std::string dj_token(const std::string& job) { return in_digits(job, kCrockford, 5, kHex, 4, kTokenLetters); }

std::optional<std::string> job_of_dj_token(std::string_view token) {
  if (token.size() != kTokenLetters || token.find_first_not_of(kHex) != token.npos) return std::nullopt;
  const std::string id = in_digits(token, kHex, 4, kCrockford, 5, kIdLetters);
  return is_id(id) ? std::optional(id) : std::nullopt;
}

std::string dj_client_ref(const DjRequest& request) {
  return fmt::format("{} {}{}", kDjMark, request.upscale, request.upscale_network ? kDjNetwork : "");
}

bool dj_upscales_by_network(const Job& job) {
  return job.client_ref.starts_with(kDjMark) && job.client_ref.ends_with(kDjNetwork);
}

int dj_upscale_of(const Job& job) {
  const std::string_view network = dj_upscales_by_network(job) ? kDjNetwork : "";
  for (const int factor : {2, 4})
    if (job.client_ref == fmt::format("{} {}{}", kDjMark, factor, network)) return factor;
  return 1;
}

namespace {

constexpr const char* kRefusedCode = "content_policy_violation";

}  // namespace

Json dj_status(const Job& job, int64_t queue_position) {
  const auto asked = [&](const char* name) -> Json {
    if (job.resolved.is_object() && job.resolved.contains(name)) return job.resolved[name];
    return job.request.contains(name) ? job.request[name] : Json();
  };
  const auto time = [](int64_t ms) { return ms ? Json(rfc3339(ms)) : Json(); };
  Json model = asked("model");
  if (model.is_object()) model = model.value("id", "");
  Json error = job.error.is_object() && job.error.contains("message") ? job.error["message"] : Json();
  // This interface has no codes; clients tell a refusal by this word.
  if (error.is_string() && job.error.value("code", "") == kRefusedCode)
    error = std::string(kRefusedCode) + ": " + error.get<std::string>();
  return {{"token", dj_token(job.id)},
          {"status", job.state == "cancelling" ? "running" : job.state},
          {"prompt", job.request.value("prompt", "")},
          {"model", model},
          {"width", asked("width")},
          {"height", asked("height")},
          {"seed", job.images.empty() ? asked("seed") : Json(job.images.front().seed)},
          {"created_at", time(job.created)},
          {"started_at", time(job.started)},
          {"completed_at", time(job.finished)},
          {"error", error},
          {"progress_message", job.message.empty() ? Json() : Json(job.message)},
          {"queue_position", queue_position > 0 ? Json(queue_position) : Json()}};
}

}  // namespace flux2
