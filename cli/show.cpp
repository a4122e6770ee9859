#include "cli/show.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "image/resize.h"

namespace flux2 {

namespace {

constexpr int kAnswerMilliseconds = 100;
constexpr int kLargestStep = 512;      // pixels
constexpr uint32_t kStepImage = 4711;  // kitty's number for the picture that steps replace

// Asks the terminal for its device attributes; 4 among them is sixel graphics.
bool terminal_has_sixel() {
  termios before{};
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before) != 0) return false;
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  std::string answer;
  write_sequence(Channel::Message, "\x1b[c");
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char c = 0;
  while (answer.size() < 64 && !answer.ends_with('c') && ::poll(&input, 1, kAnswerMilliseconds) == 1 &&
         ::read(STDIN_FILENO, &c, 1) == 1)
    answer += c;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
  return answer.find(";4;") != answer.npos || answer.ends_with(";4c");
}

bool tmux_lets_through() {
  const std::unique_ptr<FILE, int (*)(FILE*)> tmux(::popen("tmux show-options -gv allow-passthrough 2>/dev/null", "r"), ::pclose);
  char answer[16] = {};
  return tmux && std::fgets(answer, sizeof answer, tmux.get()) && std::string_view(answer).starts_with("on");
}

TerminalView view_of(int descriptor) {
  TerminalView view;
  winsize window{};
  if (::ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    view.columns = window.ws_col;
    if (window.ws_xpixel > 0 && window.ws_row > 0 && window.ws_ypixel > 0) {
      view.cell_width = std::max(1, window.ws_xpixel / window.ws_col);
      view.cell_height = std::max(1, window.ws_ypixel / window.ws_row);
    }
  }
  return view;
}

}  // namespace

void check_show_options(const Settings& settings) {
  settings.choice("show", {"auto", "kitty", "iterm2", "sixel", "blocks", "off"}, "off");
  settings.number("zoom", 0.05, 16);
}

std::optional<Screen> Screen::open(Invocation& run, const std::string& otherwise) {
  check_show_options(run.settings);
  const std::string asked = run.settings.text("show", "off");
  const std::string how = asked == "off" ? otherwise : asked;
  if (how == "off") return std::nullopt;
  Screen screen;
  screen.console_ = &run.console;
  screen.zoom_ = run.settings.number("zoom", 0.05, 16).value_or(1.0);
  screen.terminal_ = is_terminal(Channel::Message) ? Channel::Message : Channel::Result;
  if (!is_terminal(screen.terminal_)) return std::nullopt;

  const Environment environment = [&](std::string_view name) {
    const char* value = run.environment(std::string(name).c_str());
    return std::string(value ? value : "");
  };
  screen.tmux_ = !environment("TMUX").empty() && tmux_lets_through();
  screen.protocol_ = how == "auto"
                         ? choose_protocol(environment, {.sixel = terminal_has_sixel(), .tmux_passthrough = screen.tmux_})
                         : protocol_from_name(how);
  if (screen.protocol_ != TerminalProtocol::None) return screen;
  run.console.note("this terminal cannot show images");
  return std::nullopt;
}

Image Screen::zoomed(const Image& image) const {
  if (zoom_ == 1.0) return image;
  const auto side = [&](int s) { return std::clamp(static_cast<int>(s * zoom_), 1, 4096); };
  return resize(image, side(image.width), side(image.height));
}

void Screen::draw(const Image& image) {
  TerminalView view = view_of(descriptor_of(terminal_));
  view.tmux = tmux_;
  write(show_image(zoomed(image), protocol_, view));
}

void Screen::draw_step(const Image& image) {
  TerminalView view = view_of(descriptor_of(terminal_));
  view.tmux = tmux_;
  view.max_side = kLargestStep;
  view.image_id = kStepImage;
  view.replace_rows = step_rows_;
  const TerminalPicture drawn = show_image(zoomed(image), protocol_, view);
  write(drawn);
  step_rows_ = drawn.rows;
}

void Screen::write(const TerminalPicture& picture) {
  console_->clear_status();
  write_sequence(terminal_, picture.bytes);
}

PictureMaker::OnPreview StepDisplay::on_preview() {
  const std::string file = run_.settings.text("preview-file");
  const bool draws = run_.settings.flag("show-steps"), tells = !file.empty() && run_.console.progress() == ProgressMode::Json;
  if (draws && !screen_) screen_ = Screen::open(run_, "auto");
  if (!screen_ && !tells) return {};
  return [this, file, tells](const Image& preview, const StepDone& step) {
    if (tells) run_.console.event({{"event", "preview"}, {"file", file}, {"step", step.step}, {"steps", step.steps}});
    if (!screen_) return;
    screen_->draw_step(preview);
    if (step.step == step.steps) screen_->end_steps();
  };
}

void show_picture(const Image& image, Invocation& run) {
  if (auto screen = Screen::open(run)) screen->draw(image);
}

}  // namespace flux2
