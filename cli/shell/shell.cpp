#include "cli/shell/shell.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "app/adapters.h"
#include "app/context.h"
#include "app/picture_maker.h"
#include "app/resolve_image_prompts.h"
#include "base/text.h"
#include "cli/prepare.h"
#include "cli/shell/commands.h"
#include "cli/shell/completion.h"
#include "cli/shell/line_editor.h"
#include "cli/shell/words.h"
#include "cli/user_input.h"
#include "pipeline/picture_size.h"

namespace flux2 {

namespace {

constexpr auto kTwice = std::chrono::seconds(2);  // two Ctrl-C within it leave

// The first word, which is taken away together with the blanks behind it.
std::string take_word(std::string_view& text) {
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string word(text.substr(0, end));
  text = trimmed(text.substr(end));
  return word;
}

bool is_setting(const std::string& word) {
  const auto& keys = ShellSettings::keys();
  return std::find(keys.begin(), keys.end(), word) != keys.end();
}

// "hlep" and "help": two neighbouring letters are swapped.
bool is_swapped(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  const auto [left, right] = std::mismatch(a.begin(), a.end(), b.begin());
  return a.end() - left >= 2 && left[0] == right[1] && left[1] == right[0] && std::equal(left + 2, a.end(), right + 2);
}

// A word that is almost a command, and a setting without "=" such as "steps 4" or "set steps 4", are mistakes rather than
// prompts. Returns what was probably meant, or an empty string.
std::string probably_meant(const std::string& text) {
  std::string_view rest = text;
  std::string word = take_word(rest);
  if (rest.empty()) {
    if (word.size() < 4) return {};
    for (const std::string& name : shell_command_names())
      if (name.size() >= 4 && (edit_distance(word, name) <= 1 || is_swapped(word, name))) return name;
    return {};
  }
  const bool set = word == "set";
  if (set) word = take_word(rest);
  const bool one_word = !rest.empty() && rest.find_first_of(" \t") == rest.npos;
  const bool value = one_word && (set || (rest[0] >= '0' && rest[0] <= '9'));
  return value && is_setting(word) ? word + "=" + std::string(rest) : std::string();
}

bool is_size(const std::string& word) {
  const size_t x = word.find('x');
  return x != word.npos && x > 0 && x + 1 < word.size() && word.find_first_not_of("0123456789x") == word.npos &&
         word.find('x', x + 1) == word.npos;
}

}  // namespace

Shell::Shell(Invocation& run) : run_(run), display_(run.console), keeper_(run), history_(data_path(run.environment, "history")) {
  run_.settings.add({{"show", {{"auto"}, "shell"}}});  // below everything
}

int Shell::run() {
  LineEditor editor(history_, [this](std::string_view before) {
    return complete_shell_line(before, shell_command_names(), static_cast<int>(pictures_.size()));
  });
  if (editor.is_terminal())
    run_.console.note("type a prompt to generate an image, key=value to change a setting, help for more, Ctrl-D to leave");
  while (true) {
    const EnteredLine entered = editor.read("flux2> ");
    if (interrupt_signal() == SIGTERM) return 128 + SIGTERM;
    if (entered.kind == EnteredLine::End) return interrupt_signal() == 0 ? 0 : 128 + interrupt_signal();
    if (entered.kind == EnteredLine::Interrupted) {
      if (interrupted_ && Clock::now() - *interrupted_ < kTwice) return 128 + SIGINT;
      interrupted_ = Clock::now();
      continue;
    }
    history_.add(entered.text);
    if (!enter(entered.text)) return interrupt_signal() == SIGTERM ? 128 + SIGTERM : 0;
  }
}

bool Shell::enter(const std::string& line) {
  try {
    interpret(line);
  } catch (const Error& e) {
    display_.finish();
    if (e.code() != ErrorCode::Cancelled) {
      run_.console.error(e);
    } else {
      run_.console.note("stopped");
      if (interrupt_signal() == SIGTERM) return false;
      forget_interrupt();
      interrupted_ = Clock::now();
    }
  } catch (const std::bad_alloc&) {
    run_.console.error(Error(ErrorCode::OutOfMemory, "not enough memory", "a smaller size or batch needs less"));
  } catch (const std::exception& e) {
    run_.console.error(Error(ErrorCode::Internal, e.what()));
  }
  return !leave_;
}

void Shell::interpret(const std::string& line) {
  const std::string text(trimmed(line));
  if (text.empty()) make(once_);
  else if (run_command(text)) return;
  else if (const auto pairs = key_values(text)) change(*pairs);
  else if (const std::string meant = probably_meant(text); !meant.empty())
    throw Error(ErrorCode::InvalidArgument, fmt::format("\"{}\" is not a command; did you mean {}?", text, meant),
                "to use it as a prompt: prompt=\"" + text + "\"");
  else take_prompt(text);
}

bool Shell::run_command(const std::string& line) { return run_shell_command(*this, line); }

Invocation Shell::invocation(const SettingLayer& once) const {
  Invocation one = run_;
  one.positional.clear();
  one.settings = run_.settings.with(above_options(settings_.layer())).with(once);
  return one;
}

SettingLayer Shell::above_options(SettingLayer layer) const {
  hide_configured_transformer(layer, run_.settings);
  return layer;
}

size_t Shell::index_of(const std::string& word) const {
  const auto number = picture_number(word);
  check(number.has_value(), "\"{}\" is not an image: use $1, $2, …, or $ for the last one", word);
  check(!pictures_.empty(), "no image has been generated yet");
  check(*number <= static_cast<int>(pictures_.size()), "image ${} does not exist: the last one is ${}", *number,
        pictures_.size());
  return *number == 0 ? pictures_.size() - 1 : static_cast<size_t>(*number - 1);
}

void Shell::change(const std::vector<std::pair<std::string, std::string>>& pairs) {
  SettingLayer layer = settings_.layer();
  std::vector<std::string> missing;
  for (const auto& [key, value] : pairs)
    layer = ShellSettings::changed(
        std::move(layer), key, value, [this](const std::string& word) { return path_of(word); }, missing);
  for (const std::string& path : missing) run_.console.warn("file not found: " + path);
  accept(std::move(layer));
}

// Values are tried as a request would use them; what breaks a rule leaves everything as it was.
void Shell::accept(SettingLayer layer) {
  Invocation one = run_;
  one.settings = run_.settings.with(above_options(layer));
  const RequestSpec spec = one.spec();
  const ModelFiles model = choose_model(spec, one, &found_);
  InputImages images({}, {}, one.limits);
  ResolvedRequest resolved = resolve(spec, model, Task::Generate, {}, &images, one.limits);
  adapter_choices(spec, one);
  if (spec.image_prompt && spec.image_prompt_adapter) resolve_image_prompts(spec, model, one, {}, images, resolved);
  const SettingLayer before = settings_.layer();
  settings_.replace(std::move(layer));
  once_.clear();
  for (const auto& [option, setting] : settings_.layer())
    if (const auto old = before.find(option); old == before.end() || old->second.values != setting.values)
      run_.console.result(fmt::format("{} = {}", option, settings_.text(option)));
  for (const auto& [option, setting] : before)
    if (!settings_.layer().contains(option)) run_.console.result(option + " is not set");
}

// "$1 $3 768x512 put the car on the beach"
void Shell::take_prompt(const std::string& line) {
  std::string_view rest = line;
  SettingLayer once;
  std::vector<std::string> references;
  while (rest.starts_with('$')) {
    std::string_view after = rest;
    const std::string word = take_word(after);
    if (!picture_number(word)) break;
    references.push_back(path_of(word));
    rest = after;
  }
  if (!references.empty()) once["input"] = {references, "$"};
  std::string_view after = rest;
  if (const std::string word = take_word(after); is_size(word) && !after.empty()) {
    const PictureSize size = parse_picture_size(word);
    once["width"] = {{std::to_string(size.width)}, word};
    once["height"] = {{std::to_string(size.height)}, word};
    rest = after;
  }
  if (rest.empty()) {  // pictures alone
    for (const std::string& path : references)
      for (size_t i = pictures_.size(); i-- > 0;)
        if (pictures_[i].path == path) {
          show_line(i);
          break;
        }
    return;
  }
  SettingLayer layer = settings_.layer();
  layer["prompt"] = {{std::string(rest)}, "--prompt"};
  layer.erase("rewritten-prompt");  // it belongs to another prompt
  settings_.replace(std::move(layer));
  once_ = once;
  if (settings_.text("autorun") == "off") run_.console.result("prompt = " + std::string(rest));
  else make(once_);
}

void Shell::make(const SettingLayer& once) {
  forget_interrupt();
  Invocation one = invocation(once);
  PreparedRun prepared = prepare_run(one, Task::Generate, &found_);
  rewrite_requests(one, prepared.model, prepared.requests);
  for (const ResolvedRequest& resolved : prepared.requests)
    if (!resolved.record.rewriting.by.empty() && !resolved.record.rewriting.failed)
      run_.console.result("rewritten: " + resolved.request.prompt);
  const RequestSpec spec = one.spec();
  PictureWriter writer(spec);
  for (const ResolvedRequest& resolved : prepared.requests) {
    check(resolved.output() != "-", "the shell writes images to files: output=none");
    writer.expect(resolved.output(), resolved.request.batch);
    if (outputs_.contains(resolved.output())) writer.never_overwrite(resolved.output());
  }
  writer.check_targets(one.log);
  for (const ResolvedRequest& resolved : prepared.requests) outputs_.insert(resolved.output());
  PictureMaker& maker = keeper_.maker_for(spec, prepared.model, prepared.requests, display_.progress());
  StepDisplay steps(one);
  const Clock::time_point start = Clock::now();
  for (const ResolvedRequest& resolved : prepared.requests) {
    const auto write = [&](const Picture& picture, GenerationRecord record) {
      set_seed(record, picture);
      const WrittenPicture written = writer.write(picture, record, resolved.output());
      deliver(written, record, resolved, one, std::chrono::duration<double>(Clock::now() - start).count());
    };
    display_.begin();
    maker.make(resolved, write, display_.progress(resolved.spec.deadline), steps.on_preview());
  }
  display_.finish();
  last_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
}

void Shell::deliver(const WrittenPicture& written, const GenerationRecord& record, const ResolvedRequest& resolved,
                    const Invocation& one, double seconds) {
  ShellPicture picture{written.path,  written.image.width, written.image.height,
                       record.seed(), record.prompt(),     layer_of(spec_of_record(record), "use")};
  picture.settings["prompt"].origin = "--prompt";
  for (const char* option : {"model", "base", "input"})  // about files, which a record knows by name alone
    if (const Setting* setting = one.settings.find(option)) picture.settings[option] = *setting;
  for (const AdapterChoice& adapter : resolved.adapters)
    picture.settings.try_emplace("lora", Setting{{}, "use"}).first->second.values.push_back(text_of(adapter));
  add_picture(std::move(picture));
  display_.finish();
  Invocation drawing = one;
  if (Screen* terminal = screen(drawing)) terminal->draw(written.image);
  show_line(pictures_.size() - 1);
  run_.console.log().info("{:.2f} s", seconds);
}

void Shell::add_picture(ShellPicture picture) { pictures_.push_back(std::move(picture)); }

void Shell::show_line(size_t index) const {
  const ShellPicture& picture = pictures_[index];
  run_.console.result(fmt::format("${}  {}  {}x{}{}  {}", index + 1, picture.path.string(), picture.width, picture.height,
                                  picture.seed ? fmt::format("  seed {}", *picture.seed) : "", picture.prompt));
}

// Asking a terminal what it can do takes a moment: once for each way of showing is enough.
Screen* Shell::screen(Invocation& one) {
  const std::string key = one.settings.text("show") + " " + one.settings.text("zoom");
  if (key != screen_key_) {
    screen_ = Screen::open(one);
    screen_key_ = key;
  }
  return screen_ ? &*screen_ : nullptr;
}

int run_shell(Invocation& run) {
  check(run.positional.empty(), "shell takes no argument: \"{}\"", run.positional.empty() ? "" : run.positional.front());
  return Shell(run).run();
}

}  // namespace flux2
