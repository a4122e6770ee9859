#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace flux2 {

// A value as Python source writes it: None, True, 3, 1e-4, "text", r'text', [1, 2], (1, 2). A bare list with commas is a tuple.
class PythonValue {
 public:
  struct Sequence {
    bool is_tuple = false;
    std::vector<PythonValue> items;
  };
  using Content = std::variant<std::monostate, bool, int64_t, double, std::string, Sequence>;

  PythonValue() = default;
  PythonValue(Content content) : content_(std::move(content)) {}

  const Content& content() const { return content_; }
  bool is_none() const { return std::holds_alternative<std::monostate>(content_); }
  template <class T>
  const T* as() const {
    return std::get_if<T>(&content_);
  }
  std::optional<double> number() const;  // of an int or a float

  std::string repr() const;  // as Python's repr() writes it
  std::string str() const;   // as str(): a text without quotes

 private:
  Content content_;
};

// Throws InvalidArgument with the place of the fault.
PythonValue parse_python(std::string_view text);

// Options given as words key=value (split at the first "="), with Python literals as values. The consumer asks for what it knows,
// each with a default; finish() then reports a key that nobody asked for, with the nearest known one.
class PythonOptions {
 public:
  // `setting` is the name of the option that the words were given to, for errors: "optimizer_args".
  PythonOptions(std::string setting, const std::vector<std::string>& words);

  bool has(const std::string& key);  // also makes the key known
  double number(const std::string& key, double otherwise);
  std::optional<double> optional_number(const std::string& key);  // nothing for None
  int64_t integer(const std::string& key, int64_t otherwise);
  std::optional<int64_t> optional_integer(const std::string& key);
  bool flag(const std::string& key, bool otherwise);
  std::vector<double> numbers(const std::string& key, std::vector<double> otherwise);  // as many as the default has
  std::string text(const std::string& key, const std::string& otherwise);              // quotes may be missing
  std::vector<std::string> texts(const std::string& key);                              // a list of texts, or one text
  void ignore(const std::vector<std::string>& keys);                                   // known, any value, no effect

  void finish() const;

  // "k=v,k=v" in the order given, values as Python's str() writes them.
  std::string str() const;

 private:
  const std::string* find(const std::string& key);
  std::optional<PythonValue> value(const std::string& key);
  [[noreturn]] void refuse(const std::string& key, const char* wanted) const;

  std::string setting_;
  std::vector<std::pair<std::string, std::string>> given_;
  std::vector<std::string> known_;
};

// A float as Python's repr() writes it: "1.0", "1e-08".
std::string python_float(double value);

}  // namespace flux2
