#include "server/api/openai_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "image/format.h"
#include "pipeline/picture_size.h"
#include "server/http/errors.h"

namespace flux2 {

namespace {

constexpr int64_t kMostOpenAiImages = 10, kMostPartialImages = 3;
constexpr size_t kMostCharacters = 32'000;
constexpr int64_t kLeastPreviewSide = 64, kMostPreviewSide = 2048;

[[noreturn]] void wrong_type(const std::string& param, const char* expected, const Json& found) {
  throw HttpError(400, "invalid_type",
                  fmt::format("Invalid type for '{}': expected {}, but got {}.", param, expected, found.type_name()), param);
}

[[noreturn]] void wrong_value(const std::string& param, const std::string& why) {
  throw HttpError(400, "invalid_value", fmt::format("Invalid value for '{}': {}", param, why), param);
}

// Typed access to members; null and absent ones give nothing.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}

  const Json* find(const char* name) const {
    const auto member = object_.find(name);
    return member == object_.end() || member->is_null() ? nullptr : &*member;
  }
  std::optional<std::string> text(const char* name) const {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_string()) wrong_type(name, "a string", *value);
    return value->get<std::string>();
  }
  std::string choice(const char* name, const std::vector<std::string>& allowed, const char* fallback) const {
    const auto value = text(name);
    if (!value) return fallback;
    if (std::find(allowed.begin(), allowed.end(), *value) == allowed.end())
      wrong_value(name, fmt::format("'{}' is not one of {}.", printable(*value), fmt::join(allowed, ", ")));
    return *value;
  }
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_number_integer()) wrong_type(name, "an integer", *value);
    const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(high);
    if (too_large || value->get<int64_t>() < low) wrong_value(name, fmt::format("it must be from {} to {}.", low, high));
    return value->get<int64_t>();
  }
  std::optional<double> number(const char* name) const {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_number()) wrong_type(name, "a number", *value);
    return value->get<double>();
  }
  bool flag(const char* name) const {
    const Json* value = find(name);
    if (!value) return false;
    if (!value->is_boolean()) wrong_type(name, "a boolean", *value);
    return value->get<bool>();
  }

 private:
  const Json& object_;
};

size_t characters_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string prompt_of(const Members& members) {
  const auto prompt = members.text("prompt");
  if (!prompt || prompt->empty())
    throw HttpError(400, "missing_required_parameter", "Missing required parameter: 'prompt'.", "prompt");
  if (characters_of(*prompt) > kMostCharacters)
    wrong_value("prompt", fmt::format("it has more than {} characters.", kMostCharacters));
  return *prompt;
}

void read_size(const Members& members, Json& native) {
  const auto text = members.text("size");
  if (!text || *text == "auto") return;
  try {
    const PictureSize size = valid_picture_size(parse_picture_size(*text), false, Log());
    native["width"] = size.width;
    native["height"] = size.height;
  } catch (const Error& e) {
    wrong_value("size", e.what());
  }
}

void read_quality(const Members& members, OpenAiRequest& request) {
  const std::string quality = members.choice("quality", {"auto", "low", "medium", "high", "standard", "hd"}, "auto");
  if (quality == "low") request.quality = "low", request.quality_steps = 20;
  if (quality == "medium" || quality == "standard") request.quality = "medium", request.quality_steps = 28;
  if (quality == "high" || quality == "hd") request.quality_steps = 50;
}

void read_output(const Members& members, OpenAiRequest& request) {
  request.as_url = members.choice("response_format", {"b64_json", "url"}, "b64_json") == "url";
  request.output_format = members.choice("output_format", {"png", "jpeg", "webp"}, "png");
  const auto formats = available_formats();
  if (request.output_format == "webp" && std::find(formats.begin(), formats.end(), ImageFormat::WebP) == formats.end())
    throw HttpError(400, "unsupported_value", "This server was built without WebP. Use png or jpeg.", "output_format");
  request.native["output_format"] = request.output_format;
  const int64_t quality = members.integer("output_compression", 0, 100).value_or(100);
  if (request.output_format != "png") request.native["output_quality"] = std::max<int64_t>(quality, 1);
  if (members.choice("background", {"auto", "opaque", "transparent"}, "auto") == "transparent")
    throw HttpError(400, "unsupported_value", "Images with a transparent background are not supported.", "background");
  if (members.choice("moderation", {"auto", "low"}, "auto") == "low") request.native["moderation"] = "low";
}

void read_extensions(const Members& members, Json& native) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  if (const auto seed = members.integer("seed", -1, kAny)) native["seed"] = *seed;
  for (const char* name : {"num_inference_steps", "steps"})
    if (const auto steps = members.integer(name, 1, 1000)) native["steps"] = *steps;
  for (const char* name : {"guidance_scale", "guidance"})
    if (const auto guidance = members.number(name)) native["guidance"] = *guidance;
  if (const auto negative = members.text("negative_prompt"); negative && !negative->empty()) native["negative"] = *negative;
  if (const Json* loras = members.find("loras")) {
    if (!loras->is_array()) wrong_type("loras", "an array", *loras);
    native["loras"] = *loras;
  }
}

// Any native member; it wins over the rest.
void read_flux2(const Members& members, OpenAiRequest& request) {
  const Json* own = members.find("flux2");
  if (!own) return;
  if (!own->is_object()) wrong_type("flux2", "an object", *own);
  for (const auto& [key, value] : own->items()) {
    if (value.is_null()) continue;
    if (key == "preview_size") {
      request.preview_side = static_cast<int>(*Members(*own).integer("preview_size", kLeastPreviewSide, kMostPreviewSide));
      continue;
    }
    if (key == "size") {  // replaces both sides, whoever set them
      request.native.erase("width");
      request.native.erase("height");
    }
    request.native[key] = value;
  }
}

std::optional<Json> number_in_text(const std::string& text) {
  auto value = try_parse_json(text);
  return value && value->is_number() ? value : std::nullopt;
}

// A text of a form as the type that the member has. What does not fit stays a text, and the check of the member answers.
Json typed(const std::string& member, const std::string& text) {
  static const std::vector<std::string> texts = {"prompt",          "negative_prompt", "model",      "size",      "quality",
                                                 "response_format", "output_format",   "background", "user",      "style",
                                                 "moderation",      "input_fidelity",  "negative",   "name",      "layers",
                                                 "client_ref",      "references",      "canvas",     "project_id"};
  if (std::find(texts.begin(), texts.end(), member) != texts.end()) return text;
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (auto number = number_in_text(text)) return *number;
  return text;
}

// "flux2[loras][0][name]" → flux2, loras, 0, name. Nothing if the brackets do not match.
std::optional<std::vector<std::string>> keys_of(const std::string& name) {
  const size_t first = name.find('[');
  std::vector<std::string> keys = {name.substr(0, first)};
  for (size_t at = first; at < name.size();) {
    const size_t end = name.find(']', at);
    if (name[at] != '[' || end == name.npos) return std::nullopt;
    keys.push_back(name.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return keys;
}

bool is_index(const std::string& key) {
  return key.empty() || (key.size() < 4 && std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }));
}

// Sets a nested value. A key that is empty or a number appends to a list; "loras[][name]" and "loras[][weight]" fill the same
// element until a member repeats.
void set_nested(Json& target, const std::vector<std::string>& keys, size_t at, const Json& value) {
  if (at == keys.size()) {
    target = value;
    return;
  }
  const std::string& key = keys[at];
  if (!is_index(key)) {
    if (!target.is_object()) target = Json::object();
    set_nested(target[key], keys, at + 1, value);
    return;
  }
  if (!target.is_array()) target = Json::array();
  size_t index = target.size();
  if (!key.empty()) index = std::min<size_t>(std::stoul(key), target.size());
  else if (at + 1 < keys.size() && !target.empty() && target.back().is_object() && !target.back().contains(keys[at + 1]))
    index = target.size() - 1;
  if (index == target.size()) target.push_back(nullptr);
  set_nested(target[index], keys, at + 1, value);
}

std::string image_of_object(const Json& image, const std::string& param) {
  if (image.is_string()) return image.get<std::string>();
  if (!image.is_object()) wrong_type(param, "an object", image);
  const Members members(image);
  if (const auto text = members.text("b64_json")) return *text;
  if (const Json* url = members.find("image_url"); url && url->is_object()) {  // as in chats
    if (const auto text = Members(*url).text("url")) return *text;
  } else if (const auto text = members.text("image_url")) {
    return *text;
  }
  if (const auto id = members.text("file_id")) return "asset:" + *id;
  throw HttpError(400, "missing_required_parameter", "An image needs one of image_url, b64_json and file_id.", param);
}

}  // namespace

OpenAiRequest parse_openai_request(const Json& body) {
  OpenAiRequest request;
  const Members members(body);
  request.native["prompt"] = prompt_of(members);
  request.model = members.text("model").value_or("");
  request.native["count"] = members.integer("n", 1, kMostOpenAiImages).value_or(1);
  read_size(members, request.native);
  read_quality(members, request);
  read_output(members, request);
  request.stream = members.flag("stream");
  request.partial_images = static_cast<int>(members.integer("partial_images", 0, kMostPartialImages).value_or(0));
  if (request.partial_images > 0 && !request.stream) wrong_value("partial_images", "it needs 'stream': true.");
  request.user = members.text("user").value_or("");
  if (const auto style = members.text("style")) request.native["tags"] = Json::array({"style:" + *style});
  if (const auto fidelity = members.find("input_fidelity"))
    if (!fidelity->is_null()) request.high_fidelity = members.choice("input_fidelity", {"high", "low"}, "high") == "high";
  read_extensions(members, request.native);
  // Partial images are decoded ones; a linear preview is too coarse to be shown as a result. No others are decoded.
  if (request.partial_images > 0) request.native["preview"] = {{"mode", "full"}, {"count", request.partial_images}};
  read_flux2(members, request);
  if (request.native.contains("model") && request.native["model"].is_string())
    request.model = request.native["model"].get<std::string>();
  return request;
}

bool is_openai_image_part(std::string_view name) {
  return name == "image" || (name.starts_with("image[") && name.ends_with(']'));
}

Json openai_body_of_form(const std::vector<FormPart>& parts) {
  Json body = Json::object();
  for (const FormPart& part : parts) {
    if (part.is_file || is_openai_image_part(part.name) || part.name == "mask") continue;
    const auto keys = keys_of(part.name);
    if (!keys || keys->size() > 8) continue;  // unknown members are ignored
    if (!is_utf8(part.data) || !is_utf8(part.name) || !part.file.empty())
      wrong_value(printable(part.name), "it is not a text in UTF-8, or too long.");
    Json value = typed(keys->back().empty() ? keys->at(keys->size() - 2) : keys->back(), part.data);
    if (keys->size() == 1 && (part.name == "flux2" || part.name == "loras")) {
      const auto parsed = try_parse_json(part.data);
      if (!parsed) throw HttpError(400, "invalid_json", "The part '" + part.name + "' is not valid JSON.", part.name);
      value = *parsed;
    }
    set_nested(body, *keys, 0, value);
  }
  return body;
}

std::vector<std::string> openai_images(const Json& body) {
  std::vector<std::string> images;
  for (const char* name : {"images", "image"}) {
    const Json* given = Members(body).find(name);
    if (!given) continue;
    for (const Json& image : given->is_array() ? *given : Json::array({*given}))
      images.push_back(image_of_object(image, "image"));
    break;
  }
  return images;
}

std::optional<std::string> openai_mask(const Json& body) {
  const Json* mask = Members(body).find("mask");
  return mask ? std::optional(image_of_object(*mask, "mask")) : std::nullopt;
}

void apply_model_rules(OpenAiRequest& request, const ModelFiles& model) {
  if (model.distilled) request.native.erase("guidance");
  else if (request.quality_steps > 0 && !request.native.contains("steps")) request.native["steps"] = request.quality_steps;
}

std::string reference_pixels(const OpenAiRequest& request, size_t count) {
  if (!request.high_fidelity || request.native.contains("ref_pixels")) return {};
  constexpr int64_t kAlone = 2024 * 2024, kTogether = 1024 * 1024;
  if (*request.high_fidelity) return std::to_string(kAlone);
  return std::to_string((count == 1 ? kAlone : kTogether) / 2);
}

bool is_openai_model_name(std::string_view name) {
  return name.starts_with("gpt-image") || name.starts_with("dall-e") || name.starts_with("chatgpt-image");
}

}  // namespace flux2
