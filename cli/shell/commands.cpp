#include "cli/shell/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include "app/context.h"
#include "base/atomic_file.h"
#include "cli/prepare.h"
#include "cli/shell/shell.h"
#include "cli/shell/words.h"
#include "cli/user_input.h"
#include "image/read_image.h"
#include "record/picture_metadata.h"

extern char** environ;

namespace flux2 {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

// The commands, each with the arguments that make a line one. They are the shell's own hands.
struct ShellCommands {
  struct Entry {
    const char* names;  // separated by blanks
    const char* arguments;
    const char* help;
    bool (*fits)(const Words& arguments);
    void (*run)(Shell& shell, const Words& arguments);
  };
  static const std::vector<Entry>& all();

  static bool none(const Words& a) { return a.empty(); }
  static bool any(const Words&) { return true; }
  static bool at_most_one(const Words& a) { return a.size() <= 1; }
  static bool picture(const Words& a) { return a.size() == 1 && picture_number(a[0]); }
  static bool maybe_picture(const Words& a) { return a.empty() || picture(a); }
  static bool is_number(const std::string& word) {
    return !word.empty() && word.size() < 5 && word.find_first_not_of("0123456789") == word.npos;
  }
  static bool maybe_number(const Words& a) { return a.empty() || (a.size() == 1 && is_number(a[0])); }
  static bool number_first(const Words& a) { return !a.empty() && is_number(a[0]); }
  static bool one(const Words& a) { return a.size() == 1; }
  static bool maybe_picture_and_path(const Words& a) {
    return (a.size() == 1 && !picture_number(a[0])) || (a.size() == 2 && picture_number(a[0]));
  }
  static bool pairs(const Words& a) {
    return std::all_of(a.begin(), a.end(), [](const std::string& word) { return word.find('=') != word.npos; });
  }

  static void help(Shell& shell, const Words&);
  static void show(Shell& shell, const Words&);
  static void set(Shell& shell, const Words& a);
  static void reset(Shell& shell, const Words& a);
  static void run(Shell& shell, const Words& a);
  static void explore(Shell& shell, const Words& a);
  static void use(Shell& shell, const Words& a);
  static void save(Shell& shell, const Words& a);
  static void load(Shell& shell, const Words& a);
  static void refs(Shell& shell, const Words&);
  static void model(Shell& shell, const Words& a);
  static void lora(Shell& shell, const Words& a);
  static void open(Shell& shell, const Words& a);
  static void history(Shell& shell, const Words&);
  static void undo(Shell& shell, const Words&);
  static void plan(Shell& shell, const Words&);
  static void time(Shell& shell, const Words&);
  static void write(Shell& shell, const Words& a);
  static void source(Shell& shell, const Words& a);
  static void rewrite(Shell& shell, const Words&);
  static void elements(Shell&, const Words&) {
    throw Error(ErrorCode::InvalidArgument, "the shell has no elements",
                "they belong to the projects of the web page (flux2 serve)");
  }
  static void quit(Shell& shell, const Words&) { shell.leave_ = true; }

  static void say(Shell& shell, const std::string& line) { shell.run_.console.result(line); }
};

const std::vector<ShellCommands::Entry>& ShellCommands::all() {
  static const std::vector<Entry> entries = {
      {"help h ?", "", "show this text", none, help},
      {"show", "", "show the settings", none, show},
      {"set", "KEY=VALUE…", "change settings; the word may be left out", pairs, set},
      {"reset", "[KEY]", "unset a key, or all keys", at_most_one, reset},
      {"run", "[N]", "generate one image, or N, with the settings; an empty line generates one", maybe_number, run},
      {"explore", "N [PROMPT]", "generate N small images with different seeds", number_first, explore},
      {"use", "$N", "use all settings of an image", picture, use},
      {"save", "[$N] PATH", "copy an image to a file; without $N, the last one", maybe_picture_and_path, save},
      {"load", "PATH", "add an image file as the next $N", one, load},
      {"refs", "", "list the images", none, refs},
      {"model", "[ID|PATH]", "show the model, or use another one", at_most_one, model},
      {"open", "[$N]", "open an image in the desktop's viewer", maybe_picture, open},
      {"history", "", "list the lines you entered", none, history},
      {"undo", "", "undo the last change of settings", none, undo},
      {"plan", "", "forecast memory and time", none, plan},
      {"time", "", "show how long the last run took", none, time},
      {"write", "FILE", "save the settings as key=value lines", one, write},
      {"source", "FILE", "run the lines of a file", one, source},
      {"lora", "[FILE[:W]…]", "show the adapters, or use others; `lora none` removes them", any, lora},
      {"rewrite", "", "let a language model rewrite the prompt (upsample=…); an empty line then uses it", none, rewrite},
      {"elements", "", nullptr, none, elements},
      {"quit q exit", "", "leave; so does Ctrl-D", none, quit},
  };
  return entries;
}

void ShellCommands::help(Shell& shell, const Words&) {
  say(shell, "a prompt              generates an image; $1 $2 768x512 before it are references and a size");
  say(shell, "key=value …           changes settings; key=none unsets one");
  for (const Entry& entry : all())
    if (entry.help) {
      const std::string names = entry.names;
      say(shell, fmt::format("{:<22}{}", names.substr(0, names.find(' ')) + " " + entry.arguments, entry.help));
    }
  std::string keys = "keys:";
  for (const std::string& key : ShellSettings::keys()) {
    if (keys.size() - (keys.rfind('\n') == keys.npos ? 0 : keys.rfind('\n')) + key.size() > 95) keys += "\n     ";
    keys += " " + key;
  }
  say(shell, keys);
}

void ShellCommands::show(Shell& shell, const Words&) {
  Invocation one = shell.invocation(shell.once_);
  const RequestSpec spec = one.spec();
  const ModelFiles model = choose_model(spec, one, &shell.found_);
  const Request request = resolve(spec, model).request;
  say(shell, fmt::format("prompt = {}", request.prompt));
  if (!request.negative.empty()) say(shell, fmt::format("negative = {}", request.negative));
  say(shell, fmt::format("model = {}", model.id));
  say(shell, fmt::format("size = {}x{}", request.width, request.height));
  say(shell, fmt::format("steps = {}", request.steps));
  say(shell, fmt::format("guidance = {}{}", request.guidance, request.cfg ? fmt::format("  cfg = {}", *request.cfg) : ""));
  say(shell, fmt::format("seed = {}", one.settings.text("seed", "random")));
  for (const auto& [option, setting] : shell.settings_.layer()) {
    bool shown = false;
    for (const char* name : {"prompt", "negative", "model", "width", "height", "steps", "guidance", "cfg", "seed"})
      shown = shown || option == name;
    if (!shown) say(shell, fmt::format("{} = {}", option, shell.settings_.text(option)));
  }
}

void ShellCommands::set(Shell& shell, const Words& a) {
  if (a.empty()) return show(shell, a);
  std::vector<std::pair<std::string, std::string>> list;
  for (const std::string& word : a) list.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  shell.change(list);
}

void ShellCommands::reset(Shell& shell, const Words& a) {
  if (!a.empty()) return shell.change({{a[0], "none"}});
  shell.accept({});
}

void ShellCommands::run(Shell& shell, const Words& a) {
  SettingLayer once = shell.once_;
  if (!a.empty()) once["batch"] = {{a[0]}, "run"};
  shell.make(once);
}

void ShellCommands::explore(Shell& shell, const Words& a) {
  SettingLayer once = shell.once_;
  const std::string prompt = fmt::format("{}", fmt::join(a.begin() + 1, a.end(), " "));
  if (!prompt.empty()) {
    SettingLayer layer = shell.settings_.layer();
    layer["prompt"] = {{prompt}, "--prompt"};
    layer.erase("rewritten-prompt");
    shell.settings_.replace(std::move(layer));
    shell.once_.clear();
    once.clear();
  }
  once["batch"] = {{a[0]}, "explore"};
  once["seed"] = {{"random"}, "explore"};
  // Half the sides where that leaves a picture worth looking at.
  Invocation one = shell.invocation(once);
  const RequestSpec spec = one.spec();
  const Request request = resolve(spec, choose_model(spec, one, &shell.found_)).request;
  constexpr int kSmall = 256;
  if (std::min(request.width, request.height) >= 2 * kSmall) {
    once["width"] = {{std::to_string(request.width / 2)}, "explore"};
    once["height"] = {{std::to_string(request.height / 2)}, "explore"};
  }
  shell.make(once);
}

void ShellCommands::use(Shell& shell, const Words& a) {
  SettingLayer layer = shell.settings_.layer();
  for (const auto& [option, setting] : shell.pictures_[shell.index_of(a[0])].settings) layer[option] = setting;
  shell.accept(std::move(layer));
}

void ShellCommands::save(Shell& shell, const Words& a) {
  const fs::path from = shell.path_of(a.size() == 2 ? a[0] : "$"), to = a.back();
  if (!to.has_extension())
    throw Error(ErrorCode::InvalidArgument, fmt::format("{} does not say in which format to save", to.string()),
                "end the name with .png or another format: save " + to.string() + ".png");
  const ImageFormat format = format_from_name(to.extension().string());
  const Limits& limits = shell.run_.limits;
  const auto file = MappedFile::open(from);
  if (sniff_format(file->bytes()) == format) {
    save_image(to, file->bytes());
  } else {
    ImageMetadata metadata = read_metadata(file->bytes(), limits.image);
    if (const auto found = find_record(metadata, limits.json)) metadata = picture_metadata(found->record, {}, format);
    save_image(to, encode_image(read_image(file->bytes(), {.limits = limits.image}), format, metadata));
  }
  say(shell, fmt::format("{} is saved as {}", from.string(), to.string()));
}

void ShellCommands::load(Shell& shell, const Words& a) {
  const Limits& limits = shell.run_.limits;
  const Image image = read_image(a[0], {.limits = limits.image});
  ShellPicture picture{a[0], image.width, image.height, std::nullopt, {}, {}};
  if (const auto found = find_record(read_metadata(a[0], limits.image), limits.json)) {
    picture.seed = found->record.seed();
    picture.prompt = found->record.prompt();
    picture.settings = layer_of(spec_of_record(found->record), "use");
  }
  shell.add_picture(std::move(picture));
  Invocation one = shell.invocation({});
  if (Screen* terminal = shell.screen(one)) terminal->draw(to_rgb(image));
  shell.show_line(shell.pictures_.size() - 1);
}

void ShellCommands::refs(Shell& shell, const Words&) {
  if (shell.pictures_.empty()) say(shell, "no images yet");
  for (size_t i = 0; i < shell.pictures_.size(); ++i) shell.show_line(i);
  if (const std::string inputs = shell.settings_.text("input"); !inputs.empty()) say(shell, "inputs = " + inputs);
}

void ShellCommands::model(Shell& shell, const Words& a) {
  if (!a.empty()) return shell.change({{"model", a[0]}});
  Invocation one = shell.invocation({});
  const ModelFiles files = choose_model(one.spec(), one, &shell.found_);
  say(shell, fmt::format("{} ({})", files.id, files.transformer.string()));
}

void ShellCommands::lora(Shell& shell, const Words& a) {
  if (!a.empty()) return shell.change({{"lora", fmt::format("{}", fmt::join(a, ","))}});
  const std::string adapters = shell.settings_.text("lora");
  say(shell, adapters.empty() ? "no adapters" : "lora = " + adapters);
}

void ShellCommands::rewrite(Shell& shell, const Words&) {
  Invocation one = shell.invocation(shell.once_);
  const RequestSpec spec = one.spec();
  check(spec.prompt && !spec.prompt->empty(), "there is no prompt yet");
  forget_interrupt();
  const RewrittenPrompt rewritten = rewrite_alone(one, *spec.prompt);
  SettingLayer layer = shell.settings_.layer();
  layer["rewritten-prompt"] = {{rewritten.prompt}, "rewrite"};
  shell.settings_.replace(std::move(layer));
  say(shell, "rewritten: " + rewritten.prompt);
}

void ShellCommands::open(Shell& shell, const Words& a) {
  std::string program = "xdg-open", path = shell.path_of(a.empty() ? "$" : a[0]);
  char* const arguments[] = {program.data(), path.data(), nullptr};
  pid_t child = 0;
  if (const int failure = ::posix_spawnp(&child, program.c_str(), nullptr, nullptr, arguments, environ); failure != 0)
    throw Error(ErrorCode::NotFound, fmt::format("cannot start xdg-open: {}", std::strerror(failure)), "the image is " + path);
  int status = 0;
  ::waitpid(child, &status, 0);  // it hands the file over and ends
  check(status == 0, "xdg-open could not show {}", path);
}

void ShellCommands::history(Shell& shell, const Words&) {
  for (const std::string& line : shell.history_.lines()) say(shell, line);
}

void ShellCommands::undo(Shell& shell, const Words&) {
  check(shell.settings_.undo(), "there is nothing to undo");
  shell.once_.clear();
  show(shell, {});
}

void ShellCommands::plan(Shell& shell, const Words&) {
  Invocation one = shell.invocation(shell.once_);
  run_plan(one);
}

void ShellCommands::time(Shell& shell, const Words&) {
  const ProgressDisplay& display = shell.display_;
  say(shell, fmt::format("text {:.2f} s, encode {:.2f} s, denoise {:.2f} s, decode {:.2f} s, in all {:.2f} s",
                         display.seconds_in(Phase::Text), display.seconds_in(Phase::EncodeReferences),
                         display.seconds_in(Phase::Denoise), display.seconds_in(Phase::Decode), shell.last_seconds_));
}

void ShellCommands::write(Shell& shell, const Words& a) {
  AtomicFile file(a[0]);
  for (const auto& [option, setting] : shell.settings_.layer()) {
    std::string key = option == "input" ? "inputs" : option;
    std::replace(key.begin(), key.end(), '-', '_');
    const std::string line = key + "=" + shell_quoted(shell.settings_.text(option)) + "\n";
    file.write(line.data(), line.size());
  }
  file.commit();
  say(shell, a[0] + " is written");
}

void ShellCommands::source(Shell& shell, const Words& a) {
  constexpr int kDeepest = 8;
  check(shell.sourcing_ < kDeepest, "files are sourced more than {} deep", kDeepest);
  const std::string text = read_text_file(a[0], shell.run_.limits.text);
  ++shell.sourcing_;
  for (size_t start = 0; start < text.size() && !shell.leave_;) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    if (const size_t first = line.find_first_not_of(" \t\r"); first != line.npos && line[first] != '#') shell.enter(line);
    start = end + 1;
  }
  --shell.sourcing_;
}

namespace {

// Whether the words behind a command are a mistake in its arguments rather than the rest of a prompt: a single word, an image
// such as $2, or a file where the command takes one.
bool are_arguments(const ShellCommands::Entry& entry, const Words& words) {
  const std::string_view taken = entry.arguments;
  const bool takes_file = taken.find("PATH") != taken.npos || taken.find("FILE") != taken.npos;
  const auto is_argument = [&](const std::string& word) {
    if (picture_number(word)) return true;
    const size_t dot = word.find('.');
    return takes_file && (word.find('/') != word.npos || (dot != word.npos && dot + 1 < word.size()));
  };
  return words.size() <= 1 || std::any_of(words.begin(), words.end(), is_argument);
}

}  // namespace

bool run_shell_command(Shell& shell, const std::string& line) {
  const bool forced = line.starts_with('!');
  const std::string text = forced ? line.substr(1) : line;
  const std::string name = text.substr(0, text.find_first_of(" \t"));
  for (const ShellCommands::Entry& entry : ShellCommands::all()) {
    const std::string names = std::string(" ") + entry.names + " ";
    if (name.empty() || names.find(" " + name + " ") == names.npos) continue;
    Words arguments;
    try {
      arguments = shell_words(text.substr(name.size()));
    } catch (const Error&) {
      if (forced) throw;
      return false;  // an apostrophe in a prompt
    }
    if (entry.fits(arguments)) {
      entry.run(shell, arguments);
      return true;
    }
    if (!forced && !are_arguments(entry, arguments)) return false;
    const bool takes_nothing = std::string_view(entry.arguments).empty();
    throw Error(ErrorCode::InvalidArgument,
                takes_nothing ? fmt::format("{} takes no arguments", name)
                              : fmt::format("{} is used like this: {} {}", name, name, entry.arguments),
                forced ? Hint() : Hint("to use the line as a prompt: prompt=" + shell_quoted(text)));
  }
  check(!forced, "\"{}\" is not a command; help lists all commands", name);
  return false;
}

std::vector<std::string> shell_command_names() {
  std::vector<std::string> names;
  for (const ShellCommands::Entry& entry : ShellCommands::all()) {
    const std::string all = entry.names;
    names.push_back(all.substr(0, all.find(' ')));
  }
  return names;
}

}  // namespace flux2
