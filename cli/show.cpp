#include "cli/show.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "image/resize.h"
#include "image/terminal.h"

namespace flux2 {

namespace {

constexpr int kAnswerMilliseconds = 100;

// Asks the terminal for its device attributes; 4 among them is sixel graphics.
bool terminal_has_sixel() {
  termios before{};
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before) != 0)
    return false;
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  std::string answer;
  if (::write(STDERR_FILENO, "\x1b[c", 3) == 3) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    char c = 0;
    while (answer.size() < 64 && !answer.ends_with('c') && ::poll(&input, 1, kAnswerMilliseconds) == 1 &&
           ::read(STDIN_FILENO, &c, 1) == 1)
      answer += c;
  }
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
  return answer.find(";4;") != answer.npos || answer.ends_with(";4c");
}

bool tmux_lets_through() {
  const std::unique_ptr<FILE, int (*)(FILE*)> tmux(::popen("tmux show-options -gv allow-passthrough 2>/dev/null", "r"),
                                                   ::pclose);
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

void show_picture(const Image& image, Invocation& run) {
  const std::string how = run.settings.choice("show", {"auto", "kitty", "iterm2", "sixel", "blocks", "off"}, "off");
  if (how == "off") return;
  const double zoom = run.settings.number("zoom", 0.05, 16).value_or(1.0);
  const int descriptor = ::isatty(STDERR_FILENO) ? STDERR_FILENO : STDOUT_FILENO;
  if (::isatty(descriptor) == 0) return;

  const Environment environment = [&](std::string_view name) {
    const char* value = run.environment(std::string(name).c_str());
    return std::string(value ? value : "");
  };
  const bool tmux = !environment("TMUX").empty(), passes = tmux && tmux_lets_through();
  const TerminalProtocol protocol =
      how == "auto" ? choose_protocol(environment, {.sixel = terminal_has_sixel(), .tmux_passthrough = passes})
                    : protocol_from_name(how);
  if (protocol == TerminalProtocol::None) {
    run.console.note("this terminal cannot show pictures");
    return;
  }
  TerminalView view = view_of(descriptor);
  view.tmux = passes;
  const auto scaled = [&](int side) { return std::clamp(static_cast<int>(side * zoom), 1, 4096); };
  const TerminalPicture drawn =
      show_image(zoom == 1.0 ? image : resize(image, scaled(image.width), scaled(image.height)), protocol, view);
  run.console.clear_status();
  FILE* terminal = descriptor == STDERR_FILENO ? stderr : stdout;
  std::fwrite(drawn.bytes.data(), 1, drawn.bytes.size(), terminal);
  std::fflush(terminal);
}

}  // namespace flux2
