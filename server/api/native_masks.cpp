#include <fmt/format.h>

#include <atomic>

#include "base/base64.h"
#include "base/text.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/api/service_mask.h"
#include "server/api/studio.h"
#include "server/http/errors.h"
#include "server/jobs/request_images.h"

namespace flux2 {

namespace {

using Gone = MaskService::Cancelled;

// Runs a call of the service. What went wrong there becomes an answer of ours.
template <class Call>
auto from_service(Call&& call) {
  try {
    return call();
  } catch (const MaskServiceError& e) {
    HttpError error = [&]() -> HttpError {
      switch (e.why()) {
        case MaskServiceError::Unavailable: return {424, "mask_service_unavailable", e.what()};
        case MaskServiceError::FoundNothing: return {422, "empty_mask", e.what()};
        case MaskServiceError::Busy: return {429, "busy", e.what()};
        case MaskServiceError::Failed: break;
      }
      return {502, "mask_service_failed", e.what()};
    }();
    if (e.why() == MaskServiceError::Busy) error.headers = {{"retry-after", "2"}};
    error.hint = e.hint().plain();
    throw error;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::InvalidArgument) throw;
    throw HttpError(400, "invalid_request", e.what(), "points");
  }
}

const MaskService& service_of(const ApiContext& api) {
  if (!api.masks) throw HttpError(424, "mask_service_unavailable", "this server uses no mask service");
  return *api.masks;
}

Image image_of_asset(const std::string& reference, ApiContext& api) {
  const auto asset = api.queue.assets().get(reference.substr(std::string_view("asset:").size()));
  if (!asset) throw HttpError(400, "invalid_image_file", "image: not found", "image");
  return read_image(api.queue.assets().path_of(*asset), {.limits = api.app.limits.image});
}

// A request as JSON, and its image. A form has the same members as texts; its image may be a file.
struct MaskQuery {
  Json members = Json::object();
  Image image;
};

Image image_in_part(const FormPart& part, ApiContext& api) {
  try {
    if (!part.file.empty()) return read_image(part.file, {.limits = api.app.limits.image});
    return read_image(std::as_bytes(std::span(part.data)), {.limits = api.app.limits.image});
  } catch (const Error& e) {
    throw HttpError(400, "invalid_image_file", std::string("image: the image cannot be read: ") + e.what(), "image");
  }
}

MaskQuery query_in_form(const ServerRequest& request, ApiContext& api) {
  MaskQuery query;
  bool has_image = false;
  for (const FormPart& part : request.parts) {
    if (part.name == "image" && part.is_file) {
      query.image = image_in_part(part, api);
      has_image = true;
    } else if (part.name == "text" || part.name == "image") {
      query.members[part.name] = part.data;
    } else {
      try {
        query.members[part.name] = parse_json(part.data, api.app.limits.json);
      } catch (const Error&) {
        throw HttpError(400, "invalid_request", fmt::format("{}: must be JSON", printable(part.name)), printable(part.name));
      }
    }
  }
  if (has_image) query.members.erase("image");
  return query;
}

MaskQuery query_of(const ServerRequest& request, ApiContext& api, std::initializer_list<const char*> known) {
  MaskQuery query = request.is_multipart ? query_in_form(request, api) : MaskQuery{json_body(request, api.app), {}};
  BodyMembers members(query.members, known);
  const auto image = members.text("image", kImageBody);
  if (!image && query.image.width == 0)
    members.wrong("image", "must be an image: asset:ID, a data URL, base64, or a file of a form");
  members.check_all();
  if (image) query.image = image_of_asset(stored_image(*image, "reference", api.queue.assets(), api.app, "image"), api);
  return query;
}

std::string text_in(const Json& members) {
  const auto text = members.find("text");
  if (text == members.end() || !text->is_string() || trimmed(text->get_ref<const std::string&>()).empty() ||
      text->get_ref<const std::string&>().size() > 1000)
    throw HttpError(400, "invalid_request", "text: must have 1 to 1000 bytes", "text");
  return text->get<std::string>();
}

double confidence_in(const Json& members, const char* name) {
  const auto value = members.find(name);
  if (value == members.end() || value->is_null()) return 0.5;
  if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() <= 1))
    throw HttpError(400, "invalid_request", fmt::format("{}: must be a number from 0 to 1", name), name);
  return value->get<double>();
}

// [[x, y], …] or [[x, y, label], …]; labels may be a list of their own, and those that are missing are 1.
std::vector<MaskPoint> points_in(const Json& list, const Json& labels, const char* name) {
  const auto wrong = [&] {
    return HttpError(400, "invalid_request", fmt::format("{}: must be a list of points, [[x, y], …], with labels 1 or 0", name),
                     name);
  };
  if (list.is_null()) return {};
  if (!list.is_array() || !(labels.is_null() || labels.is_array())) throw wrong();
  std::vector<MaskPoint> points;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& point = list[i];
    if (!point.is_array() || point.size() < 2 || point.size() > 3 || !point[0].is_number() || !point[1].is_number())
      throw wrong();
    Json label = 1;
    if (point.size() == 3) label = point[2];
    else if (labels.is_array() && i < labels.size()) label = labels[i];
    if (label != 0 && label != 1) throw wrong();
    points.push_back({.x = point[0].get<double>(), .y = point[1].get<double>(), .include = label == 1});
  }
  return points;
}

std::optional<std::array<double, 4>> box_in(const Json& members) {
  const auto box = members.find("boxes");
  if (box == members.end() || box->is_null()) return std::nullopt;
  std::array<double, 4> values{};
  bool is_right = box->is_array() && box->size() == 4;
  for (size_t i = 0; is_right && i < 4; ++i) {
    is_right = (*box)[i].is_number() && (*box)[i].get<double>() >= 0 && (*box)[i].get<double>() <= 1;
    if (is_right) values[i] = (*box)[i].get<double>();
  }
  if (!is_right)
    throw HttpError(400, "invalid_request", "boxes: must be [centre x, centre y, width, height] as parts of the image, 0 to 1",
                    "boxes");
  return values;
}

HttpResponse png_of(const Image& mask) {
  const auto bytes = encode_png(mask);
  HttpResponse response;
  response.content_type = "image/png";
  response.body.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  response.headers = {{"cache-control", "no-store"}};
  return response;
}

HttpResponse mask_by_points(const ServerRequest& request, ApiContext& api, const Gone& gone) {
  const MaskService& service = service_of(api);
  const MaskQuery query = query_of(request, api, {"image", "points", "labels", "multimask", "boxes"});
  const Json& members = query.members;
  const Json several = members.value("multimask", Json(false));
  if (!several.is_boolean() && !several.is_null())
    throw HttpError(400, "invalid_request", "multimask: must be true or false", "multimask");
  const auto points = points_in(members.value("points", Json()), members.value("labels", Json()), "points");
  const auto box = box_in(members);
  const auto found = from_service([&] { return service.by_points(query.image, points, box, several == true, gone); });
  if (several != true) return png_of(found.front().mask);
  Json masks = Json::array();
  for (const MaskFound& one : found) masks.push_back({{"mask", base64_encode(encode_png(one.mask))}, {"score", one.score}});
  return HttpResponse::json({{"masks", masks}});
}

HttpResponse mask_by_text(const ServerRequest& request, ApiContext& api, const Gone& gone) {
  const MaskService& service = service_of(api);
  const MaskQuery query = query_of(request, api, {"image", "text", "confidence"});
  const std::string text = text_in(query.members);
  const double confidence = confidence_in(query.members, "confidence");
  return png_of(from_service([&] { return service.by_text(query.image, text, confidence, gone); }));
}

HttpResponse detect_objects(const ServerRequest& request, ApiContext& api, const Gone& gone) {
  const MaskService& service = service_of(api);
  const MaskQuery query = query_of(request, api, {"image", "text", "confidence"});
  const std::string text = text_in(query.members);
  const double confidence = confidence_in(query.members, "confidence");
  Json objects = Json::array();
  for (const MaskFound& one : from_service([&] { return service.detect(query.image, text, confidence, gone); }))
    objects.push_back({{"id", objects.size()},
                       {"mask", base64_encode(encode_png(one.mask))},
                       {"bbox", one.box},
                       {"score", one.score},
                       {"label", one.label}});
  return HttpResponse::json({{"objects", objects}, {"count", objects.size()}, {"prompt", text}});
}

}  // namespace

void add_service_mask(Json& checked, ApiContext& api) {
  if (checked.contains("mask") || (!checked.contains("mask_text") && !checked.contains("mask_points"))) return;
  const MaskService& service = service_of(api);
  const auto canvas = checked["canvas"].get<std::string>();
  const Image image = image_of_asset(canvas, api);
  const double confidence = confidence_in(checked, "mask_confidence");
  const auto points = points_in(checked.value("mask_points", Json()), Json(), "mask_points");
  const Image mask = from_service([&] {
    return checked.contains("mask_text") ? service.by_text(image, checked["mask_text"].get<std::string>(), confidence)
                                         : service.by_points(image, points, std::nullopt, false).front().mask;
  });
  Asset fields;
  fields.kind = "mask";
  fields.parent = canvas.substr(std::string_view("asset:").size());
  checked["mask"] = "asset:" + api.queue.assets().put(encode_png(mask), fields).id;
}

void add_mask_routes(Router& router, ApiContext& api) {
  router.add({.method = "GET",
              .pattern = "/api/v1/mask/health",
              .handler = answering([&api](const ServerRequest&) {
                return HttpResponse::json(api.masks ? api.masks->health()
                                                    : Json{{"online", false}, {"latency_ms", -1}, {"status", "off"}});
              }),
              .scope = Scope::Generate,
              .summary = "whether the mask service answers"});
  const auto add = [&](const char* pattern, const char* summary,
                       HttpResponse (*answer)(const ServerRequest&, ApiContext&, const Gone&), const std::string& properties) {
    const std::string body =
        R"({"type":"object","additionalProperties":false,"required":["image"],"properties":{"image":{"type":"string"},)" +
        properties + "}}";
    // The other members of a form are texts, whatever they mean.
    const char* form = R"({"type":"object","required":["image"],"properties":{"image":{"type":"string","format":"binary"}}})";
    router.add({.method = "POST",
                .pattern = pattern,
                .handler =
                    [answer, &api](const Exchange& exchange) {
                      const auto gone = std::make_shared<std::atomic<bool>>(false);
                      exchange.on_disconnect([gone] { *gone = true; });
                      exchange.respond(answer(exchange.request(), api, [gone] { return gone->load(); }));
                    },
                .scope = Scope::Generate,
                .body_limit = kImageBody,
                .summary = summary,
                .body = body,
                .form = form});
  };
  add("/api/v1/mask/points", "a mask of the object at these points", mask_by_points,
      R"("points":{"type":["array","null"],"items":{"type":"array","items":{"type":"number"}}},"labels":{"type":["array","null"],"items":{"enum":[0,1]}},
         "multimask":{"type":["boolean","null"]},"boxes":{"type":["array","null"],"items":{"type":"number"}})");
  const char* words = R"("text":{"type":"string"},"confidence":{"type":["number","null"]})";
  add("/api/v1/mask/text", "a mask of everything that these words name", mask_by_text, words);
  add("/api/v1/mask/detect", "the objects that these words name, each with its mask", detect_objects, words);
}

}  // namespace flux2
