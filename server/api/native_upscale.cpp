#include <fmt/format.h>

#include <atomic>
#include <cmath>

#include "app/upscalers.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "server/api/body_members.h"
#include "server/api/enlarging.h"
#include "server/api/native.h"
#include "server/jobs/request_images.h"
#include "server/jobs/upscale_service.h"

namespace flux2 {

namespace {

constexpr double kMostScale = 8;
constexpr int64_t kMostPixels = 100'000'000;

// A checked request.
struct UpscaleRequest {
  Image image;
  std::optional<std::filesystem::path> upscaler;  // nothing: Lanczos
  std::optional<double> scale;                    // nothing: that of the network, or 2
};

UpscaleRequest request_of(const ServerRequest& request, ApiContext& api) {
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"image", "method", "upscaler", "scale"});
  UpscaleRequest result;
  const auto image = members.text("image", kImageBody);
  if (!image) members.wrong("image", "must be an image: asset:ID, a data URL or base64");
  const auto name = members.text("upscaler", 200);
  const std::string method = members.text("method", 20).value_or(name ? "esrgan" : "lanczos");
  if (method != "lanczos" && method != "esrgan") members.wrong("method", "must be lanczos or esrgan");
  if (method == "lanczos" && name) members.wrong("upscaler", "belongs to the method esrgan");
  if (const auto scale = body.find("scale"); scale != body.end() && !scale->is_null()) {
    if (scale->is_number() && scale->get<double>() >= 1 && scale->get<double>() <= kMostScale)
      result.scale = scale->get<double>();
    else members.wrong("scale", fmt::format("must be a number from 1 to {}", kMostScale));
  }
  if (method == "esrgan" && name) {
    result.upscaler = registered_upscaler(*name, api);
    if (!result.upscaler) members.wrong("upscaler", "no upscaler of this name is installed");
  }
  members.check_all();
  if (method == "esrgan" && !result.upscaler) result.upscaler = find_upscaler({}, result.scale.value_or(4), api.app);
  const std::string stored = stored_image(*image, "reference", api.queue.assets(), api.app, "image");
  const auto asset = api.queue.assets().get(stored.substr(std::string_view("asset:").size()));
  if (!asset) throw HttpError(400, "invalid_image_file", "image: not found", "image");
  result.image = read_image(api.queue.assets().path_of(*asset), {.limits = api.app.limits.image});
  return result;
}

HttpResponse answer_to(const UpscaleRequest& request, const EnlargeImage& enlarge) {
  const Image& image = request.image;
  const Image large = request.upscaler ? enlarge(*request.upscaler, image) : image;
  const double usual = request.upscaler ? static_cast<double>(large.width) / image.width : 2;
  const auto side = [&](int s) { return static_cast<int>(std::lround(s * request.scale.value_or(usual))); };
  const auto bytes = encode_png(resize(large, side(image.width), side(image.height)));
  HttpResponse response;
  response.content_type = "image/png";
  response.body.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  response.headers = {{"cache-control", "no-store"}};
  return response;
}

void check_pixels(const UpscaleRequest& request) {
  // A network may enlarge four times before its result is made smaller.
  const double scale = std::max(request.scale.value_or(2), request.upscaler ? 4.0 : 1.0);
  if (static_cast<double>(request.image.width) * request.image.height * scale * scale > static_cast<double>(kMostPixels))
    throw HttpError(400, "invalid_value", fmt::format("the result would have more than {} pixels", kMostPixels), "image");
}

}  // namespace

std::optional<std::filesystem::path> registered_upscaler(const std::string& name, const ApiContext& api) {
  for (const ModelRecord& r : registered_upscalers(api.app))
    if (r.name == name || r.key == name) return r.path;
  return std::nullopt;
}

void answer_when_enlarged(ApiContext& api, const Exchange& exchange, Family family,
                          std::function<HttpResponse(const EnlargeImage&)> answer) {
  if (!api.upscales) throw HttpError(501, "unsupported", "this server does not enlarge images with networks");
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange.on_disconnect([gone] { *gone = true; });
  const bool accepted = api.upscales->submit([exchange, family, answer = std::move(answer), gone, service = api.upscales] {
    try {
      exchange.respond(answer([&](const std::filesystem::path& upscaler, const Image& image) {
        return service->enlarge(upscaler, image, [&] { return gone->load(); });
      }));
    } catch (...) {
      exchange.respond(error_response(family, http_error_of(std::current_exception()), exchange.request().id));
    }
  });
  if (!accepted) throw HttpError(429, "queue_full", "too many images wait to be enlarged");
}

void add_upscale_routes(Router& router, ApiContext& api) {
  router.add({.method = "POST",
              .pattern = "/api/v1/upscale",
              .handler =
                  [&api](const Exchange& exchange) {
                    auto request = std::make_shared<const UpscaleRequest>(request_of(exchange.request(), api));
                    check_pixels(*request);
                    if (!request->upscaler) return exchange.respond(answer_to(*request, {}));
                    answer_when_enlarged(api, exchange, Family::Native,
                                         [request](const EnlargeImage& enlarge) { return answer_to(*request, enlarge); });
                  },
              .scope = Scope::Generate,
              .body_limit = kImageBody,
              .summary = "enlarge an image",
              .body = R"({"type":"object","additionalProperties":false,"required":["image"],"properties":{
                "image":{"type":"string"},"method":{"enum":["lanczos","esrgan",null]},"upscaler":{"type":["string","null"]},
                "scale":{"type":["number","null"],"minimum":1,"maximum":8}}})"});
}

}  // namespace flux2
