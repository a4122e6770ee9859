#include <fmt/format.h>

#include "cli/command.h"
#include "cli/describe.h"
#include "cli/options.h"
#include "cli/prepare.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

int run_rewrite(Invocation& run) {
  run.standard_input = [bytes = run.limits.image.file_bytes] { return read_standard_input(bytes); };
  const std::string prompt = read_prompts(run, false).at(0).prompt;
  const RewrittenPrompt rewritten = rewrite_alone(run, prompt);
  if (!run.console.json()) {
    run.console.result(rewritten.prompt);
    return 0;
  }
  Json json = {{"prompt", prompt}, {"rewritten_prompt", rewritten.prompt}, {"by", run.spec().upsample.value_or("none")}};
  json["tokens"] = rewritten.tokens ? Json(*rewritten.tokens) : Json(nullptr);
  json["warnings"] = run.console.warnings();
  run.console.result(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  return 0;
}

}  // namespace

const std::vector<Command>& prompt_actions() {
  static const std::vector<Command> list = {
      {"rewrite",
       {},
       "rewrite a prompt and print the result",
       "PROMPT [options]",
       rewrite_options,
       {"flux2 prompt rewrite \"a fox\" --upsample ollama --upsample-model llama3.1",
        "flux2 prompt rewrite \"make it winter\" -i photo.png --upsample openrouter",
        "flux2 generate \"$(flux2 prompt rewrite 'a fox')\" -o fox.png"},
       run_rewrite,
       "The prompt, and the images of -i, are sent to the service that --upsample chooses. Text in double quotes is kept; if the "
       "service changes it twice, that is an error."},
      {"describe",
       {},
       "describe an image in words and print them",
       "IMAGE [options]",
       describe_options,
       {"flux2 prompt describe photo.png -m flux.2-dev",
        "flux2 prompt describe photo.png --upsample ollama --upsample-model llama3.2-vision",
        "flux2 generate \"$(flux2 prompt describe photo.png)\" -o again.png"},
       run_describe,
       "The text encoder of FLUX.2-dev can look at images; that of klein cannot. With --upsample, the image is sent to the "
       "service that it chooses."}};
  return list;
}

int run_prompt(Invocation& run) {
  if (run.positional.empty()) throw Error(ErrorCode::InvalidArgument, "missing action. Use one of: rewrite, describe");
  fail(ErrorCode::InvalidArgument, "unknown action \"{}\". Use one of: rewrite, describe", run.positional.front());
}

}  // namespace flux2
