#include "rewrite/chat_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "net/hide_token.h"
#include "net/url.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRetries = 2;
constexpr size_t kLargestAnswer = size_t{1} << 20;
constexpr int kLongestSide = 1536, kJpegQuality = 90;

// An image as the service gets it.
struct EncodedImage {
  const char* type;
  std::string base64;
};

EncodedImage encoded(const Image& image, bool full_size) {
  if (full_size) return {"image/png", base64_encode(encode_png(image))};
  const int longest = std::max(image.width, image.height);
  if (longest <= kLongestSide) return {"image/jpeg", base64_encode(encode_jpeg(image, {}, kJpegQuality))};
  const auto scaled = [&](int side) { return std::max(1, static_cast<int>(int64_t{side} * kLongestSide / longest)); };
  const Image small = resize(image, scaled(image.width), scaled(image.height));
  return {"image/jpeg", base64_encode(encode_jpeg(small, {}, kJpegQuality))};
}

bool may_be_retried(const HttpAnswer& answer) {
  if (answer.failed()) return answer.transient;
  return answer.status == 408 || answer.status == 409 || answer.status == 429 || answer.status >= 500;
}

// The sentence in {"error": {"message": …}} or {"error": …}, in a form that is safe to print.
std::string sentence_of(const HttpAnswer& answer) {
  const auto json = try_parse_json(answer.body);
  if (!json || !json->is_object() || !json->contains("error")) return {};
  const Json& error = (*json)["error"];
  if (error.is_string()) return ": " + printable(error.get<std::string>());
  if (error.is_object() && error.contains("message") && error["message"].is_string())
    return ": " + printable(error["message"].get<std::string>());
  return {};
}

double seconds_of(const std::optional<std::string>& header) {
  const auto number = header ? decimal(trimmed(*header)) : std::nullopt;
  return number ? static_cast<double>(std::min<uint64_t>(*number, 86400)) : 0;
}

Json parsed(const HttpAnswer& answer, const std::string& origin) {
  auto json = try_parse_json(answer.body);
  if (!json || !json->is_object()) fail(ErrorCode::BadFile, "{} did not answer as a language model does", origin);
  return std::move(*json);
}

const Json* member(const Json* object, const char* key) {
  if (!object || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

std::optional<int64_t> count(const Json* value) {
  return value && value->is_number_integer() ? std::optional(value->get<int64_t>()) : std::nullopt;
}

// A text, or the texts of a list of parts.
std::optional<std::string> content_text(const Json* content) {
  if (!content) return std::nullopt;
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return std::nullopt;
  std::string all;
  for (const Json& part : *content)
    if (const Json* text = member(&part, "text"); text && text->is_string()) all += text->get<std::string>();
  return all;
}

RewriteAnswer chat_answer(const Json& json, const std::string& origin) {
  const Json* choices = member(&json, "choices");
  const Json* choice = choices && choices->is_array() && !choices->empty() ? &choices->front() : nullptr;
  const auto text = content_text(member(member(choice, "message"), "content"));
  if (!text) fail(ErrorCode::BadFile, "{} did not answer as a language model does", origin);
  const Json* reason = member(choice, "finish_reason");
  return {*text, count(member(member(&json, "usage"), "completion_tokens")), reason && *reason == "length"};
}

RewriteAnswer ollama_answer(const Json& json, const std::string& origin) {
  const Json* text = member(&json, "response");
  if (!text || !text->is_string()) fail(ErrorCode::BadFile, "{} did not answer as Ollama does", origin);
  const Json* reason = member(&json, "done_reason");
  return {text->get<std::string>(), count(member(&json, "eval_count")), reason && *reason == "length"};
}

void refuse_params(const Json& params) {
  for (const char* ours : {"messages", "prompt", "system", "stream", "images"})
    check(!params.contains(ours), "upsample_params cannot contain \"{}\"", ours);
}

}  // namespace

ChatService::ChatService(ChatServiceOptions options, HttpSettings settings)
    : options_(std::move(options)), client_([&] {
        const Url url = parse_url(options_.url);
        if (url.loopback()) settings.http_proxy.clear(), settings.https_proxy.clear();
        return std::move(settings);
      }()) {
  refuse_params(options_.params);
  const Url url = parse_url(options_.url);
  check(options_.key.empty() || url.secure() || url.loopback(), "the key is not sent to {}: use an https address", url.origin());
  while (options_.url.ends_with('/')) options_.url.pop_back();
}

std::string ChatService::address() const {
  const char* path = options_.kind == ChatServiceOptions::Ollama ? "/api/generate" : "/chat/completions";
  return options_.url.ends_with(path) ? options_.url : options_.url + path;
}

Json ChatService::body_for(const RewriteQuestion& question) const {
  const std::string& instructions = question.is_caption ? options_.caption_instructions
                                    : question.is_edit  ? options_.edit_instructions
                                                        : options_.prompt_instructions;
  if (options_.kind == ChatServiceOptions::Ollama) {
    Json body = {
        {"model", options_.model},
        {"prompt", question.text()},
        {"system", instructions},
        {"stream", false},
        {"keep_alive", "0"},  // frees its memory, which we need for the image
        {"options",
         {{"temperature", 0.7}, {"top_p", 0.9}, {"num_predict", options_.max_tokens}, {"seed", question.seed & 0x7fffffff}}}};
    for (const Image& image : question.images) body["images"].push_back(encoded(image, options_.full_size).base64);
    body.merge_patch(options_.params);
    return body;
  }
  Json body = {{"model", options_.model}, {"max_tokens", options_.max_tokens}};
  body.merge_patch(options_.params);
  Json content = question.text();
  if (!question.images.empty()) {
    content = Json::array();
    for (const Image& image : question.images) {
      const EncodedImage e = encoded(image, options_.full_size);
      content.push_back({{"type", "image_url"}, {"image_url", {{"url", fmt::format("data:{};base64,{}", e.type, e.base64)}}}});
    }
    content.push_back({{"type", "text"}, {"text", question.text()}});
  }
  body["messages"] = Json::array();
  body["messages"].push_back({{"role", "system"}, {"content", instructions}});
  body["messages"].push_back({{"role", "user"}, {"content", std::move(content)}});
  return body;
}

// Sends until there is an answer, it is of no use to try again, or the time is over.
HttpAnswer ChatService::send(const HttpRequest& request, const Cancelled& cancelled) const {
  const std::string origin = parse_url(options_.url).origin();
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_s));
  const auto is_cancelled = [&] { return cancelled && cancelled(); };
  const auto too_late = [&] { fail(ErrorCode::Network, "{} did not answer within {} seconds", origin, options_.timeout_s); };
  HttpRequest timed = request;
  timed.cancelled = [&] { return is_cancelled() || Clock::now() >= deadline; };
  for (int attempt = 0;; ++attempt) {
    HttpAnswer answer;
    try {
      answer = client_.send(timed);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::Cancelled || is_cancelled()) throw;
      too_late();
    }
    if (answer.ok()) return answer;
    if (is_redirect(answer))
      fail(ErrorCode::Network, "{} sends requests on to another address; prompts are only sent to the one that was configured",
           origin);
    const std::string why = answer.failed()
                                ? fmt::format("{} cannot be reached: {}", origin, answer.failure)
                                : fmt::format("{} answered with status {}{}", origin, answer.status, sentence_of(answer));
    const double wait = std::max(seconds_of(answer.header("retry-after")), options_.first_wait_s * (1 << attempt));
    const auto next = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait));
    if (!may_be_retried(answer) || attempt == kRetries || next >= deadline)
      throw Error(ErrorCode::Network, why, answer.failed() ? "start the server, or correct its address (upsample.url)" : "");
    while (Clock::now() < next) {
      if (is_cancelled()) fail(ErrorCode::Cancelled, "stopped");
      std::this_thread::sleep_until(std::min(next, Clock::now() + std::chrono::milliseconds(50)));
    }
  }
}

RewriteAnswer ChatService::answer(const RewriteQuestion& question, const Cancelled& cancelled) {
  const std::string origin = parse_url(options_.url).origin();
  HttpRequest request{.method = "POST", .url = address(), .headers = {{"Content-Type", "application/json"}}};
  request.body = body_for(question).dump(-1, ' ', false, Json::error_handler_t::replace);
  request.token = options_.key;
  request.idle_timeout_s = options_.timeout_s;
  request.max_body = kLargestAnswer;
  return hiding_token(options_.key, [&] {
    const Json json = parsed(send(request, cancelled), origin);
    return options_.kind == ChatServiceOptions::Ollama ? ollama_answer(json, origin) : chat_answer(json, origin);
  });
}

}  // namespace flux2
