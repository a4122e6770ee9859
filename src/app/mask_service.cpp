#include "app/mask_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "base/error.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"

namespace flux2 {

namespace {

constexpr const char* kSeparator = "flux2-mask-8f1c0d7a5b3e";
constexpr size_t kMostMasks = 200;

MaskServiceError unavailable(const std::string& why) {
  return {MaskServiceError::Unavailable, "the mask service cannot be used: " + why, "start the service, or paint the mask"};
}
MaskServiceError misbehaved(const std::string& why) { return {MaskServiceError::Failed, "the mask service failed: " + why}; }
MaskServiceError nothing_found() {
  return {MaskServiceError::FoundNothing, "the mask service found nothing", "lower the confidence, or use other words or points"};
}

std::string form_text(const std::string& image, const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string body;
  for (const auto& [name, value] : fields)
    body += fmt::format("--{}\r\ncontent-disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n", kSeparator, name, value);
  body += fmt::format(
      "--{}\r\ncontent-disposition: form-data; name=\"image\"; filename=\"image.png\"\r\ncontent-type: image/png\r\n\r\n",
      kSeparator);
  return body + image + fmt::format("\r\n--{}--\r\n", kSeparator);
}

Image nearest_size(const Image& image, int width, int height) {
  if (image.width == width && image.height == height) return image;
  Image scaled(width, height, image.channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      std::copy_n(
          image.at(static_cast<int>(int64_t{x} * image.width / width), static_cast<int>(int64_t{y} * image.height / height)),
          image.channels, scaled.at(x, y));
  return scaled;
}

// Alpha where there is one, else luminance.
Image grey_of(const Image& image) {
  Image grey(image.width, image.height, 1);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) {
      const uint8_t* p = image.at(x, y);
      *grey.at(x, y) = image.channels == 4   ? p[3]
                       : image.channels == 1 ? p[0]
                                             : static_cast<uint8_t>((p[0] * 299 + p[1] * 587 + p[2] * 114 + 500) / 1000);
    }
  return grey;
}

Json parsed_answer(const HttpAnswer& answer) {
  try {
    Json json = parse_json(answer.body, {.bytes = answer.body.size() + 1});
    if (json.is_object()) return json;
  } catch (const Error&) {}
  throw misbehaved("its answer is not JSON");
}

const Json& list_in(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array() || found->size() > kMostMasks)
    throw misbehaved(fmt::format("its answer has no list \"{}\"", name));
  return *found;
}

std::vector<std::byte> bytes_in(const Json& json) {
  const auto found = json.is_object() ? json.find("mask") : json.end();
  if (!json.is_object() || found == json.end() || !found->is_string()) throw misbehaved("a mask is missing in its answer");
  try {
    std::string_view text = found->get_ref<const std::string&>();
    if (text.starts_with("data:")) text.remove_prefix(std::min(text.size(), text.find(',') + 1));
    return base64_decode(text);
  } catch (const Error&) {
    throw misbehaved("a mask in its answer is not base64");
  }
}

double number_in(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

// An image as it is sent: PNG, perhaps smaller.
struct MaskService::Sent {
  Sent(const Image& image, int longest_side) {
    const int longest = std::max(image.width, image.height);
    scale = longest > longest_side ? static_cast<double>(longest_side) / longest : 1;
    const auto scaled = [&](int side) { return std::max(1, static_cast<int>(std::lround(side * scale))); };
    width = scaled(image.width), height = scaled(image.height);
    const Image rgb = scale < 1 ? resize_to_rgb(image, AlphaRule::OverWhite, width, height) : to_rgb(image);
    const auto bytes = encode_png(rgb);
    png.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string png;
  double scale = 1;
  int width = 0, height = 0;
};

MaskServiceError::MaskServiceError(Why why, const std::string& message, const std::string& hint)
    : Error(why == FoundNothing ? ErrorCode::NotFound : ErrorCode::Network, message, hint.empty() ? Hint() : Hint(hint)),
      why_(why) {}

bool is_empty_mask(const Image& mask) {
  return std::all_of(mask.pixels.begin(), mask.pixels.end(), [](uint8_t value) { return value == 0; });
}

MaskService::MaskService(std::string url, HttpSettings settings, MaskRules rules, ImageLimits limits)
    : url_(std::move(url)), rules_(rules), limits_(limits), client_([&] {
        settings.connect_timeout_s = rules.connect_s;
        return settings;
      }()) {
  while (url_.ends_with('/')) url_.pop_back();
}

Json MaskService::health() const {
  Json json = {{"online", false}, {"latency_ms", -1}, {"status", "offline"}, {"model_loaded", false}};
  try {
    HttpRequest request;
    request.url = url_ + "/health";
    request.idle_timeout_s = rules_.connect_s;
    request.max_body = 64 << 10;
    const auto began = std::chrono::steady_clock::now();
    const HttpAnswer answer = client_.send(request);
    if (!answer.ok()) return json;
    const Json said = parsed_answer(answer);
    json["online"] = true;
    json["latency_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began).count();
    for (const char* name : {"status", "model_loaded", "processor_ready"})
      if (said.contains(name) && said[name].is_primitive()) json[name] = said[name];
    if (!json["status"].is_string()) json["status"] = "running";
  } catch (const std::exception&) {  // it is offline
  }
  return json;
}

HttpAnswer MaskService::ask(const char* route, const Sent& sent, std::vector<std::pair<std::string, std::string>> fields,
                            const Cancelled& cancelled) const {
  struct Turn {
    std::atomic<int>& running;
    int before = running.fetch_add(1);
    ~Turn() { --running; }
  } const turn{running_};
  if (turn.before >= rules_.at_a_time)
    throw MaskServiceError(MaskServiceError::Busy, "other requests use the mask service at the moment");
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(rules_.answer_s);
  bool is_late = false;
  HttpRequest request;
  request.method = "POST";
  request.url = url_ + route;
  request.headers = {{"content-type", fmt::format("multipart/form-data; boundary={}", kSeparator)}};
  request.body = form_text(sent.png, fields);
  request.idle_timeout_s = rules_.answer_s;
  request.max_body = rules_.answer_bytes;
  request.cancelled = [&] {
    is_late = std::chrono::steady_clock::now() > end;
    return is_late || (cancelled && cancelled());
  };
  HttpAnswer answer;
  try {
    answer = client_.send(request);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::Cancelled && !is_late) throw;
    throw unavailable(is_late ? fmt::format("it did not answer within {} seconds", rules_.answer_s) : e.what());
  }
  if (answer.failed()) throw unavailable(answer.failure);
  if (answer.status == 503) throw unavailable("it is not ready");
  if (!answer.ok()) throw misbehaved(fmt::format("it answered with status {}", answer.status));
  return answer;
}

Image MaskService::mask_in(std::span<const std::byte> bytes, const Image& image) const {
  try {
    return nearest_size(grey_of(read_image(bytes, {.to_srgb = false, .limits = limits_})), image.width, image.height);
  } catch (const Error& e) {
    throw misbehaved(fmt::format("its mask cannot be read: {}", e.what()));
  }
}

std::vector<MaskFound> MaskService::by_points(const Image& image, const std::vector<MaskPoint>& points,
                                              const std::optional<std::array<double, 4>>& box, bool several,
                                              const Cancelled& cancelled) const {
  check((!points.empty() || box) && points.size() <= rules_.most_points, "points: 1 to {} points are needed", rules_.most_points);
  const Sent sent(image, rules_.longest_side);
  Json places = Json::array(), labels = Json::array();
  for (const MaskPoint& point : points) {
    check(point.x >= 0 && point.x < image.width && point.y >= 0 && point.y < image.height,
          "points: ({}, {}) is outside the image, which has {} x {} pixels", point.x, point.y, image.width, image.height);
    places.push_back({point.x * sent.width / image.width, point.y * sent.height / image.height});
    labels.push_back(point.include ? 1 : 0);
  }
  std::vector<std::pair<std::string, std::string>> fields = {
      {"points", places.dump()}, {"labels", labels.dump()}, {"multimask", several ? "true" : "false"}};
  if (box) fields.push_back({"boxes", Json(*box).dump()});
  const HttpAnswer answer = ask("/predict/mask", sent, std::move(fields), cancelled);
  std::vector<MaskFound> found;
  if (!several) {
    found.push_back({.mask = mask_in(std::as_bytes(std::span(answer.body)), image), .score = 1});
  } else {
    const Json said = parsed_answer(answer);  // list_in() refers to it
    for (const Json& one : list_in(said, "masks"))
      found.push_back({.mask = mask_in(bytes_in(one), image), .score = number_in(one, "score")});
  }
  std::erase_if(found, [](const MaskFound& one) { return is_empty_mask(one.mask); });
  if (found.empty()) throw nothing_found();
  return found;
}

Image MaskService::by_text(const Image& image, const std::string& text, double confidence, const Cancelled& cancelled) const {
  const Sent sent(image, rules_.longest_side);
  const HttpAnswer answer =
      ask("/segment/text", sent, {{"text", text}, {"confidence", fmt::format("{}", confidence)}}, cancelled);
  Image mask = mask_in(std::as_bytes(std::span(answer.body)), image);
  if (is_empty_mask(mask)) throw nothing_found();
  return mask;
}

std::vector<MaskFound> MaskService::detect(const Image& image, const std::string& text, double confidence,
                                           const Cancelled& cancelled) const {
  const Sent sent(image, rules_.longest_side);
  const HttpAnswer answer = ask("/detect", sent, {{"text", text}, {"confidence", fmt::format("{}", confidence)}}, cancelled);
  std::vector<MaskFound> found;
  const Json said = parsed_answer(answer);  // list_in() refers to it
  for (const Json& one : list_in(said, "objects")) {
    MaskFound object{.mask = mask_in(bytes_in(one), image), .score = number_in(one, "score")};
    if (const auto label = one.find("label"); label != one.end() && label->is_string()) object.label = label->get<std::string>();
    if (const auto box = one.find("bbox"); box != one.end() && box->is_array() && box->size() == 4)
      for (size_t i = 0; i < 4; ++i)
        object.box[i] = (*box)[i].is_number() ? (*box)[i].get<double>() / (i % 2 == 0 ? sent.width : sent.height) *
                                                    (i % 2 == 0 ? image.width : image.height)
                                              : 0;
    found.push_back(std::move(object));
  }
  return found;
}

}  // namespace flux2
