#include "cli/shell/line_editor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/foreign_text.h"
#include "cli/output.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

// Keys that are no byte.
enum Key { kUp = 1000, kDown, kLeft, kRight, kHome, kEnd, kDelete, kWordLeft, kWordRight, kCutWord, kUnknown, kNoMore };

constexpr int kEscapeMilliseconds = 50;  // longer than a sequence takes, shorter than a person
constexpr int ctrl(char letter) { return letter & 0x1f; }

// The terminal hands over every key at once; given back in any case.
class RawMode {
 public:
  RawMode() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    raw.c_cc[VMIN] = 1, raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
  ~RawMode() { ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_); }

 private:
  termios before_{};
};

int window_columns() {
  winsize window{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 20 ? window.ws_col : 80;
}

// Sequences of our own; what a line contains goes through write_text().
void put(const std::string& sequence) { write_sequence(Channel::Message, sequence); }

bool more_within(int milliseconds) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, milliseconds) == 1;
}

int byte() {
  unsigned char c = 0;
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n == 1) return c;
    if (n == 0 || errno != EINTR || interrupt_signal() != 0) return kNoMore;
  }
}

std::string common_prefix(const std::vector<std::string>& texts) {
  std::string prefix = texts.front();
  for (const std::string& text : texts) {
    const auto [a, b] = std::mismatch(prefix.begin(), prefix.end(), text.begin(), text.end());
    prefix.erase(a, prefix.end());
  }
  return prefix;
}

// Candidates in columns below the line.
std::string listed(const std::vector<std::string>& texts, int width) {
  int widest = 0;
  for (const std::string& text : texts) widest = std::max(widest, text_columns(text) + 2);
  std::string out;
  int column = 0;
  for (const std::string& text : texts) {
    if (column > 0 && column + widest > width) out += "\n", column = 0;
    out += text + std::string(static_cast<size_t>(widest - text_columns(text)), ' ');
    column += widest;
  }
  return out + "\n";
}

}  // namespace

LineEditor::LineEditor(LineHistory& history, Completer completer)
    : history_(history), completer_(std::move(completer)), terminal_(::isatty(STDIN_FILENO) && ::isatty(STDERR_FILENO)) {}

EnteredLine LineEditor::read_plain() {
  std::string text;
  while (true) {
    const int c = byte();
    if (c == kNoMore) return text.empty() ? EnteredLine{} : EnteredLine{EnteredLine::Line, text};
    if (c == '\n') return {EnteredLine::Line, text};
    if (c != '\r' && text.size() < (size_t{1} << 20)) text += static_cast<char>(c);
  }
}

int LineEditor::escape_sequence() {
  if (!more_within(kEscapeMilliseconds)) return kUnknown;
  const int first = byte();
  if (first == 'b') return kWordLeft;
  if (first == 'f') return kWordRight;
  if (first == 127 || first == ctrl('h')) return kCutWord;
  if (first != '[' && first != 'O') return kUnknown;
  std::string numbers;
  int last = byte();
  while ((last >= '0' && last <= '9') || last == ';') numbers += static_cast<char>(last), last = byte();
  const bool with_ctrl = numbers.ends_with(";5") || numbers.ends_with(";3");
  switch (last) {
    case 'A': return kUp;
    case 'B': return kDown;
    case 'C': return with_ctrl ? kWordRight : kRight;
    case 'D': return with_ctrl ? kWordLeft : kLeft;
    case 'H': return kHome;
    case 'F': return kEnd;
    case '~':
      return numbers == "3"                     ? kDelete
             : numbers == "1" || numbers == "7" ? kHome
             : numbers == "4" || numbers == "8" ? kEnd
                                                : kUnknown;
    default: return last == kNoMore ? kNoMore : kUnknown;
  }
}

int LineEditor::key() {
  const int c = byte();
  return c == 27 ? escape_sequence() : c;
}

void LineEditor::draw() const {
  const int room = std::max(10, window_columns() - text_columns(prompt_));
  const LineView view = visible_part(line_.text(), line_.cursor(), room);
  const int column = text_columns(prompt_) + view.cursor;
  put("\r");
  write_text(Channel::Message, visible_text(prompt_ + view.text, LineBreaks::Escape));
  put(fmt::format("\x1b[K\r\x1b[{}C", column));
}

void LineEditor::recall(int step) {
  const size_t count = history_.lines().size();
  if ((step < 0 && recalled_ == 0) || (step > 0 && recalled_ == count)) return;
  if (recalled_ == count) unfinished_ = line_.text();
  recalled_ += step < 0 ? size_t(-1) : size_t{1};
  line_.set(recalled_ == count ? unfinished_ : history_.lines()[recalled_]);
}

void LineEditor::complete() {
  const Completion found = completer_(line_.before_cursor());
  if (found.candidates.empty()) return;
  const std::string typed(line_.before_cursor().substr(found.start)), common = common_prefix(found.candidates);
  if (found.candidates.size() == 1) {
    const bool open = common.ends_with('=') || common.ends_with('/');  // more belongs to it
    line_.replace_before_cursor(found.start, open ? common : common + " ");
  } else if (common.size() > typed.size()) {
    line_.replace_before_cursor(found.start, common);
  } else {
    put("\r\n");
    write_text(Channel::Message, listed(found.candidates, window_columns()));
  }
}

EnteredLine LineEditor::read(const std::string& prompt) {
  if (!terminal_) return read_plain();
  const RawMode raw;
  // From here on Ctrl-C is a key; one that came while the terminal was not ours yet is a signal.
  if (interrupt_signal() == SIGINT) {
    forget_interrupt();
    return {EnteredLine::Interrupted, ""};
  }
  prompt_ = prompt;
  line_.set("");
  recalled_ = history_.lines().size();
  while (true) {
    draw();
    const int c = key();
    switch (c) {
      case kNoMore: put("\r\n"); return {};
      case '\r':
      case '\n': put("\r\n"); return {EnteredLine::Line, line_.text()};
      case ctrl('c'): put("^C\r\n"); return {EnteredLine::Interrupted, line_.text()};
      case ctrl('d'):
        if (line_.text().empty()) {
          put("\r\n");
          return {};
        }
        line_.erase_right();
        break;
      case '\t': complete(); break;
      case kUp:
      case ctrl('p'): recall(-1); break;
      case kDown:
      case ctrl('n'): recall(1); break;
      case kLeft:
      case ctrl('b'): line_.left(); break;
      case kRight:
      case ctrl('f'): line_.right(); break;
      case kHome:
      case ctrl('a'): line_.home(); break;
      case kEnd:
      case ctrl('e'): line_.end(); break;
      case kWordLeft: line_.word_left(); break;
      case kWordRight: line_.word_right(); break;
      case 127:
      case ctrl('h'): line_.erase_left(); break;
      case kDelete: line_.erase_right(); break;
      case kCutWord:
      case ctrl('w'): line_.cut_word_left(); break;
      case ctrl('u'): line_.cut_to_start(); break;
      case ctrl('k'): line_.cut_to_end(); break;
      case ctrl('y'): line_.paste(); break;
      case ctrl('l'): put("\x1b[H\x1b[2J"); break;
      default: {
        if (c < ' ' || c >= kUp) break;
        std::string character(1, static_cast<char>(c));
        const int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;  // the rest of a UTF-8 character
        for (int i = 0; i < more; ++i) character += static_cast<char>(byte());
        line_.insert(character);
      }
    }
  }
}

}  // namespace flux2
