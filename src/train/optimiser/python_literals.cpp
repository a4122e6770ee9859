#include "train/optimiser/python_literals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr int kDeepestLiteral = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  PythonValue whole() {
    PythonValue first = value(0);
    skip_blanks();
    if (!done() && peek() == ',') {
      PythonValue::Sequence tuple{true, {std::move(first)}};
      while (accept(',')) {
        skip_blanks();
        if (done()) break;
        tuple.items.push_back(value(0));
        skip_blanks();
      }
      first = PythonValue(std::move(tuple));
    }
    if (!done()) fault("nothing more was expected");
    return first;
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  void skip_blanks() {
    while (!done() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }
  bool accept(char c) {
    if (done() || peek() != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fault(const char* why) const {
    fail(ErrorCode::InvalidArgument, "\"{}\" is not a Python value: {} at character {}", printable(text_), why, at_ + 1);
  }

  PythonValue value(int depth) {
    if (depth > kDeepestLiteral) fault("brackets are nested too deeply");
    skip_blanks();
    if (done()) fault("a value is missing");
    const char c = peek();
    if (c == '[' || c == '(') return sequence(depth);
    if (c == '\'' || c == '"') return PythonValue(quoted(false));
    if ((c == 'r' || c == 'R') && at_ + 1 < text_.size() && (text_[at_ + 1] == '\'' || text_[at_ + 1] == '"')) {
      ++at_;
      return PythonValue(quoted(true));
    }
    if (is_digit(c) || c == '.' || c == '-' || c == '+') return number();
    return word();
  }

  PythonValue sequence(int depth) {
    const bool round = peek() == '(';
    const char close = round ? ')' : ']';
    ++at_;
    PythonValue::Sequence items{round, {}};
    bool comma = false;
    for (;;) {
      skip_blanks();
      if (accept(close)) break;
      if (!items.items.empty() && !comma) fault("a comma or a closing bracket is missing");
      items.items.push_back(value(depth + 1));
      skip_blanks();
      comma = accept(',');
    }
    if (round && items.items.size() == 1 && !comma) return std::move(items.items.front());  // only brackets around a value
    return PythonValue(std::move(items));
  }

  std::string quoted(bool raw) {
    const char quote = peek();
    ++at_;
    std::string out;
    for (;;) {
      if (done()) fault("the closing quote is missing");
      const char c = text_[at_++];
      if (c == quote) return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (done()) fault("the closing quote is missing");
      const char next = text_[at_++];
      if (raw) {
        out += c;
        out += next;
        continue;
      }
      switch (next) {
        case 'n': out += '\n'; break;
        case 't': out += '\t'; break;
        case 'r': out += '\r'; break;
        case '\\':
        case '\'':
        case '"': out += next; break;
        case 'x':
        case 'u':
        case 'U':
        case 'N': fault("this escape is not supported; write the character itself"); break;
        default:
          if (is_digit(next)) fault("this escape is not supported; write the character itself");
          out += c;  // Python keeps the backslash of an escape that it does not know
          out += next;
      }
    }
  }

  PythonValue number() {
    const size_t start = at_;
    std::string digits;
    if (peek() == '-' || peek() == '+') {
      if (peek() == '-') digits += '-';
      ++at_;
    }
    bool whole = true, any = false;
    for (; !done(); ++at_) {
      const char c = peek();
      const bool exponent_sign = (c == '-' || c == '+') && !digits.empty() && (digits.back() == 'e' || digits.back() == 'E');
      if (c == '_' && any && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) continue;
      if (is_digit(c)) any = true;
      else if (c == '.' || exponent_sign || (any && (c == 'e' || c == 'E'))) whole = false;
      else break;
      digits += c;
    }
    const char* end = digits.data() + digits.size();
    if (whole) {
      int64_t value = 0;
      const auto [stop, error] = std::from_chars(digits.data(), end, value);
      if (error == std::errc() && stop == end) return PythonValue(value);
    } else {
      double value = 0;
      const auto [stop, error] = std::from_chars(digits.data(), end, value);
      if (error == std::errc() && stop == end) return PythonValue(value);
    }
    at_ = start;
    fault("this number cannot be read");
  }

  PythonValue word() {
    const size_t start = at_;
    while (!done() && (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_')) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    if (name == "None") return PythonValue();
    if (name == "True") return PythonValue(true);
    if (name == "False") return PythonValue(false);
    at_ = start;
    fault("write a number, True, False, None, a list, or a text in quotes");
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::string quoted_text(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (c == '\r') out += "\\r";
    else if (c == '\\' || c == quote) out += std::string("\\") + c;
    else out += c;
  }
  return out + quote;
}

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::optional<double> PythonValue::number() const {
  if (const auto* whole = as<int64_t>()) return static_cast<double>(*whole);
  if (const auto* real = as<double>()) return *real;
  return std::nullopt;
}

std::string PythonValue::repr() const {
  if (const auto* flag = as<bool>()) return *flag ? "True" : "False";
  if (const auto* whole = as<int64_t>()) return fmt::format("{}", *whole);
  if (const auto* real = as<double>()) return python_float(*real);
  if (const auto* text = as<std::string>()) return quoted_text(*text);
  if (const auto* list = as<Sequence>()) {
    std::string out(1, list->is_tuple ? '(' : '[');
    for (size_t i = 0; i < list->items.size(); ++i) out += (i > 0 ? ", " : "") + list->items[i].repr();
    if (list->is_tuple && list->items.size() == 1) out += ",";
    return out + (list->is_tuple ? ")" : "]");
  }
  return "None";
}

std::string PythonValue::str() const {
  const auto* text = as<std::string>();
  return text ? *text : repr();
}

PythonValue parse_python(std::string_view text) { return LiteralReader(text).whole(); }

PythonOptions::PythonOptions(std::string setting, const std::vector<std::string>& words) : setting_(std::move(setting)) {
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    check(equals != std::string::npos && equals > 0, "{}: \"{}\" is not of the form key=value", setting_, printable(word));
    const std::string key(trimmed(std::string_view(word).substr(0, equals)));
    for (const auto& [earlier, value] : given_) check(earlier != key, "{}: {} is given twice", setting_, printable(key));
    given_.emplace_back(key, trimmed(std::string_view(word).substr(equals + 1)));
  }
}

const std::string* PythonOptions::find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  for (const auto& [name, value] : given_)
    if (name == key) return &value;
  return nullptr;
}

bool PythonOptions::has(const std::string& key) { return find(key) != nullptr; }

std::optional<PythonValue> PythonOptions::value(const std::string& key) {
  const std::string* text = find(key);
  if (!text) return std::nullopt;
  return in_context(setting_ + ": " + key, [&] { return parse_python(*text); });
}

void PythonOptions::refuse(const std::string& key, const char* wanted) const {
  for (const auto& [name, value] : given_)
    if (name == key) fail(ErrorCode::InvalidArgument, "{}: {}={} is not {}", setting_, key, printable(value), wanted);
  fail(ErrorCode::Internal, "{} was not given", key);
}

double PythonOptions::number(const std::string& key, double otherwise) {
  const auto given = value(key);
  if (!given) return otherwise;
  const auto read = given->number();
  if (!read) refuse(key, "a number");
  return *read;
}

std::optional<double> PythonOptions::optional_number(const std::string& key) {
  const auto given = value(key);
  if (!given || given->is_none()) return std::nullopt;
  return number(key, 0);
}

int64_t PythonOptions::integer(const std::string& key, int64_t otherwise) {
  const auto given = value(key);
  if (!given) return otherwise;
  const auto* whole = given->as<int64_t>();
  if (!whole) refuse(key, "a whole number");
  return *whole;
}

std::optional<int64_t> PythonOptions::optional_integer(const std::string& key) {
  const auto given = value(key);
  if (!given || given->is_none()) return std::nullopt;
  return integer(key, 0);
}

bool PythonOptions::flag(const std::string& key, bool otherwise) {
  const auto given = value(key);
  if (!given) return otherwise;
  if (const auto* flag = given->as<bool>()) return *flag;
  if (const auto* whole = given->as<int64_t>(); whole && (*whole == 0 || *whole == 1)) return *whole == 1;
  refuse(key, "True or False");
}

std::vector<double> PythonOptions::numbers(const std::string& key, std::vector<double> otherwise) {
  const auto given = value(key);
  if (!given) return otherwise;
  const std::string wanted = fmt::format("a list of {} numbers", otherwise.size());
  const auto* list = given->as<PythonValue::Sequence>();
  if (!list || list->items.size() != otherwise.size()) refuse(key, wanted.c_str());
  std::vector<double> out;
  for (const PythonValue& item : list->items) {
    const auto read = item.number();
    if (!read) refuse(key, wanted.c_str());
    out.push_back(*read);
  }
  return out;
}

std::string PythonOptions::text(const std::string& key, const std::string& otherwise) {
  const std::string* given = find(key);
  if (!given) return otherwise;
  const size_t quote = given->starts_with('r') || given->starts_with('R') ? 1 : 0;
  if (given->size() <= quote || ((*given)[quote] != '\'' && (*given)[quote] != '"')) return *given;  // a shell took the quotes
  const auto read = value(key);
  const auto* text = read->as<std::string>();
  if (!text) refuse(key, "a text");
  return *text;
}

std::vector<std::string> PythonOptions::texts(const std::string& key) {
  const std::string* given = find(key);
  if (!given) return {};
  if (!given->starts_with('[') && !given->starts_with('(') && given->find_first_of("'\"") != 0) {
    const bool raw = given->starts_with("r'") || given->starts_with("r\"");
    if (!raw) return {*given};
  }
  const auto read = value(key);
  if (const auto* text = read->as<std::string>()) return {*text};
  const auto* list = read->as<PythonValue::Sequence>();
  if (!list) refuse(key, "a list of texts");
  std::vector<std::string> out;
  for (const PythonValue& item : list->items) {
    const auto* text = item.as<std::string>();
    if (!text) refuse(key, "a list of texts");
    out.push_back(*text);
  }
  return out;
}

void PythonOptions::ignore(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) find(key);
}

void PythonOptions::finish() const {
  for (const auto& [key, value] : given_) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::vector<std::string> sorted = known_;
    std::sort(sorted.begin(), sorted.end());
    const std::string nearest = nearest_word(key, sorted);
    if (!nearest.empty())
      fail(ErrorCode::InvalidArgument, "{}: unknown key {}; did you mean {}?", setting_, printable(key), nearest);
    std::string names;
    for (const std::string& name : sorted) names += (names.empty() ? "" : ", ") + name;
    fail(ErrorCode::InvalidArgument, "{}: unknown key {}; use one of: {}", setting_, printable(key), names);
  }
}

std::string PythonOptions::str() const {
  std::string out;
  for (const auto& [key, text] : given_) {
    std::string value = text;
    try {
      value = parse_python(text).str();
    } catch (const Error&) {  // a text whose quotes the shell took
    }
    out += (out.empty() ? "" : ",") + key + "=" + value;
  }
  return out;
}

}  // namespace flux2
