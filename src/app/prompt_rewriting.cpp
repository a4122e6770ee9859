#include "app/prompt_rewriting.h"

#include <fmt/format.h>

#include <map>

#include "app/local_rewriter.h"
#include "app/picture_maker.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "net/http.h"
#include "pipeline/decoded_picture.h"
#include "record/field_values.h"
#include "record/request_fields.h"
#include "rewrite/chat_service.h"
#include "rewrite/instructions.h"

namespace flux2 {

namespace {

constexpr const char* kOpenRouter = "https://openrouter.ai/api/v1";
constexpr const char* kOpenRouterModel = "mistralai/pixtral-large-2411";
constexpr const char* kOpenRouterKey = "OPENROUTER_API_KEY";
constexpr const char* kOllama = "http://localhost:11434";
constexpr int64_t kOllamaTokens = 400, kChatTokens = 512;
constexpr double kTimeout = 60, kLocalTimeout = 120;

std::string variable(const AppContext& context, const std::string& name) {
  const char* value = name.empty() ? nullptr : context.environment(name.c_str());
  return value ? value : "";
}

std::string instructions(const RequestSpec::Text& file, std::string_view built_in) {
  if (!file) return std::string(built_in);
  constexpr size_t kLongest = 64 << 10;
  const std::string text = read_text_file(*file, {.bytes = kLongest});
  check(is_utf8(text) && !trimmed(text).empty(), "{} contains no instructions in UTF-8", *file);
  return std::string(trimmed(text));
}

// Models whose makers recommend other values than the usual ones.
Json usual_params(const std::string& model) { return model == kOpenRouterModel ? Json{{"temperature", 0.15}} : Json::object(); }

ChatServiceOptions service_options(const RequestSpec& spec, const AppContext& context, const RequestSpec::Text& caption_file) {
  const std::string way = spec.upsample.value_or("none");
  const bool ollama = way == "ollama", openrouter = way == "openrouter";
  ChatServiceOptions options;
  options.kind = ollama ? ChatServiceOptions::Ollama : ChatServiceOptions::Chat;
  options.way = way;
  if (openrouter) {
    options.url = kOpenRouter;
    options.model = kOpenRouterModel;
  } else if (ollama) {
    const std::string milimo = variable(context, "MILIMO_OLLAMA_URL");
    options.url = milimo.empty() ? kOllama : milimo;
  }
  if (spec.upsample_url && !openrouter) options.url = *spec.upsample_url;
  if (options.url.empty())
    throw Error(ErrorCode::InvalidArgument, "the address of the server that rewrites prompts is missing",
                Hint("set {0}, for example in the configuration as upsample.url",
                     {set_option("upsample_url", "http://localhost:8080/v1")}));
  if (spec.upsample_model) options.model = *spec.upsample_model;
  if (options.model.empty())
    throw Error(ErrorCode::InvalidArgument, "the model that rewrites prompts is missing",
                Hint("name it with {0}, as the service calls it", {set_option("upsample_model")}));
  const std::string key_name = spec.upsample_key_env.value_or(openrouter ? kOpenRouterKey : "");
  options.key = variable(context, key_name);
  if (options.key.empty() && !key_name.empty())
    fail(ErrorCode::InvalidArgument, "the environment variable {}, which holds the key for rewriting prompts, is not set",
         printable(key_name));
  options.params = usual_params(options.model);
  if (spec.upsample_params) options.params.merge_patch(parse_json(*spec.upsample_params));
  options.max_tokens = spec.upsample_max_tokens.value_or(ollama ? kOllamaTokens : kChatTokens);
  options.timeout_s = spec.upsample_timeout.value_or(kTimeout);
  options.sends_images = !spec.upsample_no_images.value_or(false);
  options.full_size = spec.upsample_full_size.value_or(false);
  options.prompt_instructions = instructions(spec.upsample_system_t2i, prompt_instructions());
  options.edit_instructions = instructions(spec.upsample_system_edit, edit_instructions());
  options.caption_instructions = instructions(caption_file, caption_instructions());
  return options;
}

std::unique_ptr<Rewriter> open_service(const RequestSpec& spec, const AppContext& context, bool offline,
                                       const RequestSpec::Text& caption_file = {}) {
  if (offline)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{} {}: rewriting prompts needs the network", spec.origin("upsample"), *spec.upsample),
                Hint("run without {0}", {unset_option("offline")}));
  check(HttpClient::available(), "this build cannot rewrite prompts: it has no HTTP client");
  return std::make_unique<ChatService>(service_options(spec, context, caption_file), http_settings(context.environment));
}

std::unique_ptr<Rewriter> open_local(const RequestSpec& spec, const AppContext& context, const ModelFiles& model,
                                     const RequestSpec::Text& caption_file, std::function<bool(int64_t)> make_room) {
  // In the configuration it is the model of a service.
  check(!spec.is_asked("upsample_model"), "{}: with upsample local, the text encoder of the model rewrites; it cannot be chosen",
        spec.origin("upsample_model"));
  if (model.bundled)
    context.log.warn(
        "{} knows a few hundred words and cannot write sentences; use a larger model, or a service, to rewrite prompts",
        model.id);
  LocalRewriterOptions options{.files = model, .engine = engine_options(spec, context), .log = context.log};
  options.max_tokens = spec.upsample_max_tokens.value_or(kChatTokens);
  options.timeout_s = spec.upsample_timeout.value_or(kLocalTimeout);
  options.prompt_instructions = instructions(spec.upsample_system_t2i, prompt_instructions());
  options.edit_instructions = instructions(spec.upsample_system_edit, edit_instructions());
  options.caption_instructions = instructions(caption_file, caption_instructions());
  options.sends_images = !spec.upsample_no_images.value_or(false);
  if (spec.upsample_params) options.params = parse_json(*spec.upsample_params);
  options.make_room = std::move(make_room);
  return std::make_unique<LocalRewriter>(std::move(options));
}

// Each image of a batch as a request of its own.
std::vector<ResolvedRequest> one_by_one(std::vector<ResolvedRequest> requests) {
  std::vector<ResolvedRequest> single;
  for (ResolvedRequest& resolved : requests) {
    const int batch = wants_rewriting(resolved) && resolved.spec.upsample_each.value_or(false) ? resolved.request.batch : 1;
    for (int k = 0; batch > 1 && k < batch; ++k) {
      ResolvedRequest& one = single.emplace_back(resolved);
      one.request.batch = 1;
      const auto [seed, variation] = resolved.request.seed_of_image(k);
      one.request.seed = seed, one.request.variation = variation;
      one.record.request.seed = static_cast<int64_t>(seed);
      if (variation) one.record.request.variation = variation->text();
    }
    if (batch <= 1) single.push_back(std::move(resolved));
  }
  return single;
}

Error strict_failure(const Error& e) {
  return {e.code() == ErrorCode::Incompatible ? ErrorCode::InvalidArgument : e.code(),
          std::string("the prompt cannot be rewritten: ") + e.what(),
          Hint("run without {0} to use the prompt as it is", {unset_option("strict")})};
}

// Whether a failure says that the service does not work, rather than that one answer was of no use.
bool is_of_service(const Error& e) { return e.code() != ErrorCode::Incompatible; }

}  // namespace

bool wants_rewriting(const ResolvedRequest& resolved) {
  const Request& request = resolved.request;
  return resolved.spec.upsample.value_or("none") != "none" && !resolved.record.request.rewritten_prompt &&
         !trimmed(request.prompt).empty() && !request.given_text.defined() && !request.given_latents.defined();
}

std::unique_ptr<Rewriter> open_rewriter(const RequestSpec& spec, const AppContext& context, bool offline, const ModelFiles& model,
                                        const std::string& caption_file, std::function<bool(int64_t bytes)> make_room) {
  const std::string way = spec.upsample.value_or("none");
  check(way != "none", "nothing is chosen that rewrites prompts");
  const RequestSpec::Text file = caption_file.empty() ? RequestSpec::Text{} : RequestSpec::Text(caption_file);
  return way == "local" ? open_local(spec, context, model, file, std::move(make_room))
                        : open_service(spec, context, offline, file);
}

std::string rewriter_key(const RequestSpec& spec, const ModelFiles& model) {
  std::string key = model.text_encoder.string() + "\n" + model.tokenizer.string() + "\n";
  for (const Field& f : request_fields()) {
    if (!f.loads_model && !f.name.starts_with("upsample")) continue;
    const auto value = get_value(spec, f);
    key += f.name + "=" + (value ? print_value(*value).front() : "") + "\n";
  }
  return key;
}

std::vector<RewriterOffer> offered_rewriters(const RequestSpec& spec, const AppContext& context, bool offline) {
  std::vector<RewriterOffer> offers;
  for (const std::string& way : field("upsample").choices) {
    if (way == "none" || way == "local") continue;
    RequestSpec one = spec;
    one.upsample = way;
    try {
      const auto service = open_service(one, context, offline);
      offers.push_back({way, service->model(), service->place()});
    } catch (const Error&) {  // something is missing
    }
  }
  return offers;
}

std::vector<std::string> available_rewriters(const RequestSpec& spec, const AppContext& context, bool offline) {
  std::vector<std::string> ways;
  for (const RewriterOffer& offer : offered_rewriters(spec, context, offline)) ways.push_back(offer.way);
  return ways;
}

RewriteQuestion question_for(const ResolvedRequest& resolved) {
  RewriteQuestion question{.prompt = resolved.request.prompt, .seed = resolved.request.seed};
  question.is_edit = resolved.record.kind != "generate";
  for (const auto& reference : resolved.request.references)
    question.images.push_back(DecodedPicture(*reference).rgb8(Rounding::Nearest));
  return question;
}

void rewrite_prompts(std::vector<ResolvedRequest>& requests, Rewriter& rewriter, const AppContext& context,
                     const Rewriter::Cancelled& cancelled, const OnText& on_text) {
  requests = one_by_one(std::move(requests));
  std::map<std::string, std::string> known;
  bool works = true, blindness_told = false;
  for (ResolvedRequest& resolved : requests) {
    if (!wants_rewriting(resolved)) continue;
    auto& rewriting = resolved.record.rewriting;
    rewriting.by = rewriter.way(), rewriting.model = rewriter.model();
    rewriting.failed = true;
    if (!works) continue;
    const bool shares = !resolved.spec.upsample_each.value_or(false);
    if (!resolved.request.references.empty() && !rewriter.sees_images() && !blindness_told) {
      context.log.info("{} rewrites from the text alone: it does not see the reference images", rewriter.model());
      blindness_told = true;
    }
    try {
      const auto found = known.find(resolved.request.prompt);
      std::string rewritten;
      if (shares && found != known.end()) {
        rewritten = found->second;
      } else {
        RewriteQuestion question = question_for(resolved);
        question.on_text = on_text;
        const auto longest = static_cast<size_t>(context.limits.request.prompt_bytes);
        rewritten = rewrite_prompt(rewriter, std::move(question), longest, cancelled, context.log).prompt;
      }
      if (shares) known[resolved.request.prompt] = rewritten;
      resolved.request.prompt = rewritten;
      resolved.record.request.rewritten_prompt = rewritten;
      rewriting.failed = false;
      if (context.log_prompts) context.log.info("the rewritten prompt: {}", rewritten);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::Cancelled) throw;
      if (resolved.spec.strict.value_or(false)) throw strict_failure(e);
      works = !is_of_service(e);
      context.log.warn("{} is used as it is, because rewriting failed: {}", works ? "a prompt" : "the prompt", e.what());
    }
  }
}

void keep_prompts(std::vector<ResolvedRequest>& requests, const Error& why, const AppContext& context) {
  if (why.code() == ErrorCode::InvalidArgument || why.code() == ErrorCode::Cancelled) throw why;
  for (ResolvedRequest& resolved : requests) {
    if (!wants_rewriting(resolved)) continue;
    if (resolved.spec.strict.value_or(false)) throw strict_failure(why);
    resolved.record.rewriting.by = resolved.spec.upsample.value_or("");
    resolved.record.rewriting.failed = true;
  }
  context.log.warn("the prompt is used as it is, because rewriting failed: {}", why.what());
}

}  // namespace flux2
