#include "cli/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/input_images.h"
#include "app/request_limits.h"
#include "app/text_task.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "cli/install_offer.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

std::string text_from_standard_input() {
  std::string text = read_standard_input();
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

// Whether a notice was not shown to this user before; then it counts as shown.
bool is_first_time(const AppContext& context, const std::string& notice) {
  const auto marker = data_path(context.environment, "cache/notices/" + notice);
  if (marker.empty()) return true;
  if (path_exists(marker)) return false;
  try {
    AtomicFile file(marker);
    file.commit();
  } catch (const Error&) {
    // A data folder that cannot be written: the notice comes again.
  }
  return true;
}

constexpr std::array kImageOptions = {"input", "mask", "image-prompt"};

bool reads_standard_input(const Setting& setting) {
  const auto is_standard_input = [](const std::string& value) { return value == "-" || value.starts_with("-:"); };  // "-:0.5"
  return std::any_of(setting.values.begin(), setting.values.end(), is_standard_input);
}

bool reads_standard_input(const Settings& settings, std::string_view option) {
  const Setting* setting = settings.find(option);
  return setting && reads_standard_input(*setting);
}

// Standard input can be read once: as the prompt or as an image.
void refuse_two_readers(const Invocation& run) {
  const bool prompt = reads_standard_input(run.settings, "prompt") || reads_standard_input(run.settings, "prompt-file") ||
                      (!run.positional.empty() && run.positional.front() == "-");
  for (const char* option : kImageOptions)
    check(!prompt || !reads_standard_input(run.settings, option), "the prompt and --{} cannot both come from standard input",
          option);
}

// The same for the images of the lines of a prompt file.
void refuse_two_readers(const Invocation& run, const std::vector<PromptLine>& lines) {
  if (!reads_standard_input(run.settings, "prompt-file")) return;
  for (const PromptLine& line : lines)
    for (const char* option : kImageOptions)
      if (const auto image = line.settings.find(option); image != line.settings.end())
        check(!reads_standard_input(image->second), "{}: the prompt file and an image cannot both come from standard input",
              image->second.origin);
}

}  // namespace

PreparedRun prepare_run(Invocation& run, Task task, FoundModels* found) {
  task = take_settings_of_image(run.settings, task, run);
  refuse_two_readers(run);
  std::vector<PromptLine> prompts = read_prompts(run, run.settings.has("embeddings") || run.settings.has("latent-path"));
  refuse_two_readers(run, prompts);
  const size_t known = found ? found->size() : 0;
  PreparedRun prepared = [&] {
    try {
      return prepare(run.settings, prompts, task, run, found);
    } catch (const Error& e) {
      if (!installed_on_request(run, e)) throw;
      return prepare(run.settings, prompts, task, run, found);
    }
  }();
  const std::string licence = prepared.model.bundled ? "" : licence_of(prepared.model, run);
  if (!licence.empty() && is_first_time(run, "licence-" + prepared.model.id))
    run.console.note(fmt::format("{} has this licence: {}. It applies to what you do with the model and its images.",
                                 prepared.model.id, licence));
  if (prepared.model.bundled && (!found || found->size() > known) && is_first_time(run, "pico"))
    run.console.note(
        fmt::format("using the bundled model {}: small images of 12 colours, 8 shapes and 40 things drawn as emoji.\n"
                    "  For real images use a FLUX.2 model: flux2 generate -m flux.2-klein-4b …, or -m with its file or folder.",
                    prepared.model.id));
  return prepared;
}

namespace {

void note_rewriter(Invocation& run, const Rewriter& rewriter, bool has_images) {
  const std::string place = rewriter.place();
  if (place.empty()) return;
  run.console.note(fmt::format("prompts are rewritten by {} ({}): they are sent to {}{}", rewriter.way(), rewriter.model(), place,
                               has_images && rewriter.sees_images() ? ", with the reference images" : ""));
}

}  // namespace

RewrittenPrompt rewrite_alone(Invocation& run, const std::string& prompt) {
  const RequestSpec spec = run.spec();
  if (spec.upsample.value_or("none") == "none")
    throw Error(
        ErrorCode::InvalidArgument, "no language model is chosen to rewrite the prompt",
        Hint("use {0} for the text encoder of the model, or {1} for a language model that Ollama runs; {2} sets a default",
             {set_option("upsample", "local"), set_option("upsample", "ollama"),
              run_command("config set generate.upsample local")}));
  check(prompt.find_first_not_of(" \t\r\n") != prompt.npos, "the prompt is empty");
  RequestSpec checked = spec;
  checked.prompt = prompt;
  check_request_limits(checked, run.limits);
  TextTask task{.prompt = prompt, .images = {}, .is_edit = spec.input && !spec.input->empty()};
  if (spec.seed && *spec.seed >= 0) task.seed = static_cast<uint64_t>(*spec.seed);
  InputImages images(run.log, run.standard_input, run.limits);
  for (const GivenPicture& picture : images.references(spec)) task.images.push_back(to_rgb(*picture.image));
  const ModelFiles model = *spec.upsample == "local" ? choose_model(spec, run) : ModelFiles{};
  const auto rewriter = open_rewriter(spec, run, run.settings.flag("offline"), model);
  note_rewriter(run, *rewriter, !task.images.empty());
  return run_text_task(*rewriter, task, spec, model, run, [] { return interrupt_signal() != 0; });
}

void rewrite_requests(Invocation& run, const ModelFiles& model, std::vector<ResolvedRequest>& requests) {
  const auto first = std::find_if(requests.begin(), requests.end(), wants_rewriting);
  if (first == requests.end()) return;
  std::unique_ptr<Rewriter> rewriter;
  try {
    rewriter = open_rewriter(first->spec, run, run.settings.flag("offline"), model);
  } catch (const Error& e) {
    return keep_prompts(requests, e, run);
  }
  const bool has_images = std::any_of(requests.begin(), requests.end(), [](const ResolvedRequest& r) {
    return wants_rewriting(r) && r.spec.input && !r.spec.input->empty();
  });
  note_rewriter(run, *rewriter, has_images);
  rewrite_prompts(requests, *rewriter, run, [] { return interrupt_signal() != 0; });
}

std::vector<PromptLine> read_prompts(const Invocation& run, bool optional) {
  if (run.positional.size() > 1)
    throw Error(
        ErrorCode::InvalidArgument, "unexpected argument \"" + run.positional[1] + "\"",
        is_file(run.positional[0]) ? "an image is given with -i: -i " + run.positional[0] : "put the whole prompt in quotes");
  const Setting* option = run.settings.find("prompt");
  const Setting* file = run.settings.find("prompt-file");
  const bool from_picture = option && !option->origin.starts_with("--prompt");  // --from: any other prompt replaces it
  const int given = (option && !from_picture) + (file != nullptr) + !run.positional.empty();
  check(given <= 1, "the prompt is given more than once: as argument, --prompt or --prompt-file");
  if (file) {
    const std::string& path = file->values.back();
    const std::string text = path == "-" ? text_from_standard_input() : read_text_file(path, run.limits.text);
    auto prompts = in_context(path, [&] {
      check(is_utf8(text) && text.find('\0') == text.npos, "not a text file in UTF-8");
      return parse_prompt_file(text);
    });
    check(!prompts.empty(), "{} contains no prompt", path);
    return prompts;
  }
  std::string prompt = !run.positional.empty() ? run.positional.front() : option ? option->values.back() : "";
  if (prompt == "-") prompt = text_from_standard_input();
  // An empty prompt that was asked for is a prompt; none at all is a mistake.
  if (given == 0 && prompt.empty() && !optional)
    throw Error(ErrorCode::InvalidArgument, "the prompt is missing", "write it in quotes, like \"a red fox in the snow\"");
  return {{std::move(prompt), {}, given == 0}};
}

}  // namespace flux2
