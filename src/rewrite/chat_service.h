#pragma once

#include <string>

#include "base/json.h"
#include "net/http.h"
#include "rewrite/rewriter.h"

namespace flux2 {

// A service that rewrites prompts over HTTP.
struct ChatServiceOptions {
  enum Kind { Chat, Ollama } kind = Chat;  // OpenAI's /chat/completions, or Ollama's /api/generate
  std::string way;                         // as the user calls it
  std::string url;                         // base: "https://openrouter.ai/api/v1", "http://localhost:11434"
  std::string model;
  std::string key = {};          // sent as a bearer token; empty: none. Never written anywhere
  Json params = Json::object();  // merged into the body
  int64_t max_tokens = 512;
  double timeout_s = 60;      // for one answer, retries included
  double first_wait_s = 0.5;  // before the first retry; doubled for the second
  bool sends_images = true;
  bool full_size = false;  // images as PNG in their own size; otherwise as JPEG with at most 1536 pixels a side
  std::string prompt_instructions, edit_instructions, caption_instructions;
};

class ChatService : public Rewriter {
 public:
  ChatService(ChatServiceOptions options, HttpSettings settings);

  RewriteAnswer answer(const RewriteQuestion& question, const Cancelled& cancelled) override;
  std::string way() const override { return options_.way; }
  std::string model() const override { return options_.model; }
  std::string place() const override { return options_.url; }
  bool sees_images() const override { return options_.sends_images; }

  // The body that is sent for a question.
  Json body_for(const RewriteQuestion& question) const;

 private:
  std::string address() const;
  HttpAnswer send(const HttpRequest& request, const Cancelled& cancelled) const;

  ChatServiceOptions options_;
  HttpClient client_;
};

}  // namespace flux2
