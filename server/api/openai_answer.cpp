#include "server/api/openai_answer.h"

#include <fmt/format.h>

#include <charconv>

#include "server/api/waiting_client.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr int64_t kOpenAiSecond = 1000;

std::string size_text(int width, int height) { return fmt::format("{}x{}", width, height); }

// Members that every answer and event has.
void add_common(Json& json, const OpenAiAnswer& answer, int width, int height) {
  json["background"] = "opaque";
  json["output_format"] = answer.output_format;
  json["quality"] = answer.quality;
  json["size"] = size_text(width, height);
}

int64_t counted(const Job& job, const char* name) {
  if (!job.result.is_object() || !job.result.contains("usage")) return 0;
  const Json& usage = job.result["usage"];
  return usage.is_object() && usage.contains(name) && usage[name].is_number_integer() ? usage[name].get<int64_t>() : 0;
}

}  // namespace

Json openai_usage(const Job& job) {
  const int64_t text = counted(job, "text_tokens"), references = counted(job, "reference_tokens");
  const int64_t images = counted(job, "image_tokens");
  return {{"input_tokens", text + references},
          {"input_tokens_details", {{"text_tokens", text}, {"image_tokens", references}}},
          {"output_tokens", images},
          {"output_tokens_details", {{"image_tokens", images}, {"text_tokens", 0}}},
          {"total_tokens", text + references + images}};
}

Json openai_images_answer(const OpenAiAnswer& answer, const Job& job, AssetStore& assets) {
  Json json = {{"created", job.finished / kOpenAiSecond}};
  if (!job.images.empty()) add_common(json, answer, job.images.front().width, job.images.front().height);
  Json data = Json::array();
  for (const JobImage& image : job.images) {
    Json item = Json::object();
    if (answer.as_url) item["url"] = answer.file_prefix + openai_file_name(job, image, answer.output_format);
    else item["b64_json"] = base64_of(bytes_of_asset(assets, image.asset));
    item["seed"] = image.seed;
    if (job.result.is_object() && job.result.contains("rewritten_prompt"))
      item["revised_prompt"] = job.result["rewritten_prompt"];
    data.push_back(std::move(item));
  }
  json["data"] = std::move(data);
  json["usage"] = openai_usage(job);
  return json;
}

Json openai_completed_event(const OpenAiAnswer& answer, const Job& job, const JobImage& image, AssetStore& assets) {
  Json json = {{"type", answer.event + ".completed"},
               {"b64_json", base64_of(bytes_of_asset(assets, image.asset))},
               {"created_at", job.finished / kOpenAiSecond}};
  add_common(json, answer, image.width, image.height);
  json["usage"] = openai_usage(job);
  json["seed"] = image.seed;
  if (job.images.size() > 1) json["index"] = image.index;
  return json;
}

Json openai_partial_event(const OpenAiAnswer& answer, const std::string& base64, int partial_index, int image_index,
                          bool several_images, int width, int height) {
  Json json = {{"type", answer.event + ".partial_image"},
               {"b64_json", base64},
               {"partial_image_index", partial_index},
               {"created_at", now_ms() / kOpenAiSecond}};
  add_common(json, answer, width, height);
  if (several_images) json["index"] = image_index;
  return json;
}

Json openai_error_event(const HttpError& error) {
  const HttpResponse response = error_response(Family::OpenAi, error, "");
  Json json = parse_json(response.body);
  return {{"type", "error"}, {"error", json["error"]}};
}

std::string openai_file_name(const Job& job, const JobImage& image, const std::string& format) {
  return fmt::format("{}-{}.{}", job.id, image.index, format);
}

std::optional<OpenAiFile> openai_file_named(std::string_view name) {
  name = name.substr(0, name.find('.'));
  const size_t dash = name.find('-');
  if (dash == name.npos || !is_id(name.substr(0, dash))) return std::nullopt;
  OpenAiFile file{.job = std::string(name.substr(0, dash))};
  const char* end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + dash + 1, end, file.index);
  if (failure != std::errc() || stop != end || file.index < 0) return std::nullopt;
  return file;
}

}  // namespace flux2
