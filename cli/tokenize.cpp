#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

#include "app/model_choice.h"
#include "app/registry_access.h"
#include "cli/command.h"
#include "cli/user_input.h"
#include "hub/gguf_tokenizer.h"
#include "text/prompt.h"

namespace flux2 {

namespace {

BpeTokenizer load_tokenizer(Invocation& run) {
  const std::string path = run.settings.text("tokenizer");
  if (!path.empty() && !run.settings.has("model")) return flux2::load_tokenizer(model_path(path, ComponentKind::Tokenizer, run));
  const ModelFiles files = locate_model(model_query(run.spec(), run), run.console.log());
  return flux2::load_tokenizer(files.tokenizer, files.defaults.system_message);
}

Json tokens_of(const BpeTokenizer& tokenizer, const std::string& text, const Settings& settings) {
  if (const auto length = settings.integer("length", 1, 1 << 20)) {
    const PromptTokens tokens = tokenize_prompt(tokenizer, text, static_cast<int>(*length));
    Json json = {{"ids", tokens.ids}, {"mask", tokens.mask}, {"real", tokens.real}};
    if (!tokens.dropped.empty()) json["dropped"] = tokens.dropped;
    return json;
  }
  if (!settings.flag("template")) return {{"ids", tokenizer.encode(text)}};
  if (prompt_format(tokenizer) == PromptFormat::Qwen3) return {{"ids", tokenizer.encode(render_qwen_prompt(text))}};
  constexpr int kAnyLength = 1 << 20;
  const PromptTokens tokens = tokenize_prompt(tokenizer, text, kAnyLength);
  return {{"ids", std::vector<int32_t>(tokens.ids.begin() + tokens.first(), tokens.ids.end())}};
}

void tokenize_lines(Invocation& run, const BpeTokenizer& tokenizer) {
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    const Json json = in_context(fmt::format("line {}", number), [&] { return parse_json(line); });
    if (!json.is_string()) fail(ErrorCode::BadFile, "line {} is not a JSON string", number);
    run.console.result(
        tokens_of(tokenizer, json.get<std::string>(), run.settings).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

}  // namespace

int run_tokenize(Invocation& run) {
  const BpeTokenizer tokenizer = load_tokenizer(run);
  if (run.settings.flag("jsonl")) {
    check(run.positional.empty(), "--jsonl reads standard input and takes no text");
    tokenize_lines(run, tokenizer);
    return 0;
  }
  std::vector<std::string> texts = run.positional;
  if (texts.empty() || (texts.size() == 1 && texts[0] == "-")) texts = {read_standard_input()};
  for (const std::string& text : texts) {
    const Json json = tokens_of(tokenizer, text, run.settings);
    if (run.console.json()) run.console.result(json.dump(-1, ' ', false, Json::error_handler_t::replace));
    else run.console.result(fmt::format("{}", fmt::join(json["ids"].get<std::vector<int32_t>>(), " ")));
  }
  return 0;
}

}  // namespace flux2
