#include "base/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

void check_json_limit(const JsonLimits& limits, const char* name, uint64_t found, uint64_t allowed, const char* what) {
  if (found <= allowed) return;
  try {
    check_limit(name, found, allowed, what);
  } catch (const Error& e) {
    if (limits.can_be_raised) throw;
    throw Error(e.code(), e.what());
  }
}

// Builds a document within limits. The parser's own builder searches an object's keys one by one for each new key, so its time is
// quadratic in the number of keys.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(document_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text holds none

  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    over("json-keys", ++keys_, limits_.keys, "the JSON text has {} keys or more");
    Open& parent = open_.back();
    auto& members = static_cast<std::vector<Json::object_t::value_type>&>(parent.node->get_ref<Json::object_t&>());
    const auto repeated = parent.find(members, name);
    if (repeated) {
      if (limits_.refuse_duplicate_keys) fail(ErrorCode::BadFile, "JSON key \"{}\" appears twice", printable(name));
      slot_ = &members[*repeated].second;
      return true;
    }
    parent.add(members, name);
    slot_ = &members.back().second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& fault) override {
    // An exception of another kind is about a number that no type can hold.
    const bool encoding = std::string_view(fault.what()).find("UTF-8") != std::string_view::npos;
    fail(ErrorCode::BadFile, "not valid {} at byte {}", encoding ? "UTF-8" : "JSON", position);
  }

 private:
  using Members = std::vector<Json::object_t::value_type>;

  // An object or array that is not closed yet. Few keys are compared one by one; many are indexed.
  struct Open {
    Json* node;
    std::unordered_map<std::string, size_t> index = {};

    static constexpr size_t kFewKeys = 16;

    std::optional<size_t> find(const Members& members, const std::string& name) const {
      if (members.size() <= kFewKeys) {
        for (size_t i = 0; i < members.size(); ++i)
          if (members[i].first == name) return i;
        return std::nullopt;
      }
      const auto found = index.find(name);
      return found == index.end() ? std::nullopt : std::optional(found->second);
    }
    void add(Members& members, const std::string& name) {
      members.emplace_back(name, Json());
      if (members.size() <= kFewKeys) return;
      if (index.empty())
        for (size_t i = 0; i + 1 < members.size(); ++i) index.emplace(members[i].first, i);
      index.emplace(name, members.size() - 1);
    }
  };

  void over(const char* name, uint64_t found, uint64_t allowed, const char* what) const {
    check_json_limit(limits_, name, found, allowed, what);
  }

  template <class T>
  bool put(T&& value) {
    place(Json(std::forward<T>(value)));
    return true;
  }

  Json* place(Json value) {
    over("json-values", ++values_, limits_.values, "the JSON text has {} values or more");
    if (open_.empty()) return &(document_ = std::move(value));
    if (open_.back().node->is_object()) return &(*slot_ = std::move(value));
    auto& elements = open_.back().node->get_ref<Json::array_t&>();
    return &elements.emplace_back(std::move(value));
  }
  bool open(Json empty) {
    over("json-depth", open_.size() + 1, static_cast<uint64_t>(limits_.depth), "the JSON text is nested {} deep or deeper");
    // A parent is never grown while a child is open, so the address holds until the child is closed.
    Json* node = place(std::move(empty));
    open_.push_back({node});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  Json document_;
  std::vector<Open> open_;
  Json* slot_ = nullptr;  // of the value that follows a key
  size_t keys_ = 0, values_ = 0;
};

[[noreturn]] void wrong_type(const Json& found, const char* key, const char* expected) {
  fail(ErrorCode::BadFile, "\"{}\" is {} {}, not {}", key, found.is_array() || found.is_object() ? "an" : "a", found.type_name(),
       expected);
}

const Json* member_of(const Json& object, const char* key) {
  if (!object.is_object()) fail(ErrorCode::BadFile, "expected a JSON object with \"{}\", found {}", key, object.type_name());
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

template <class T>
void read_whole_number(const Json& object, const char* key, T& value) {
  const Json* member = member_of(object, key);
  if (!member) return;
  if (!member->is_number_integer()) wrong_type(*member, key, "a whole number");
  const bool fits =
      member->is_number_unsigned() ? std::in_range<T>(member->get<uint64_t>()) : std::in_range<T>(member->get<int64_t>());
  if (!fits) fail(ErrorCode::BadFile, "\"{}\" is {}, which is out of range", key, member->dump());
  value = static_cast<T>(member->get<int64_t>());
}

struct TextDescriptor {
  int fd;
  ~TextDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string read_within(const std::filesystem::path& path, const std::function<void(uint64_t)>& check_size) {
  // Opening a pipe must not wait for a writer.
  const TextDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const int reason = errno;
    fail(reason == ENOENT ? ErrorCode::NotFound : ErrorCode::BadFile, "cannot open {}: {}", path.string(), std::strerror(reason));
  }
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail(ErrorCode::BadFile, "cannot read {}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::BadFile, "{} is not a regular file", path.string());
  in_context(path.string(), [&] { check_size(static_cast<uint64_t>(info.st_size)); });

  std::string text(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t filled = 0;
  for (;;) {
    // Files in /proc state a size of 0, and a file may grow while it is read.
    if (filled == text.size()) text.resize(text.size() + std::max<size_t>(4096, text.size() / 2));
    const ssize_t got = ::read(file.fd, text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::BadFile, "cannot read {}: {}", path.string(), std::strerror(errno));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    in_context(path.string(), [&] { check_size(filled); });
  }
  text.resize(filled);
  return text;
}

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  check_json_limit(limits, "json-bytes", text.size(), limits.bytes, "the JSON text has {}");
  // The parser treats a zero byte as the end of its input and would silently ignore what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    fail(ErrorCode::BadFile, "not valid JSON at byte {}", zero + 1);
  Builder builder(limits);
  Json::sax_parse(text.data(), text.data() + text.size(), &builder);
  return builder.take();
}

std::optional<Json> try_parse_json(std::string_view text, const JsonLimits& limits) {
  try {
    return parse_json(text, limits);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void read_member(const Json& object, const char* key, std::string& value) {
  if (const Json* member = member_of(object, key)) {
    if (!member->is_string()) wrong_type(*member, key, "a string");
    value = member->get_ref<const std::string&>();
  }
}

void read_member(const Json& object, const char* key, bool& value) {
  if (const Json* member = member_of(object, key)) {
    if (!member->is_boolean()) wrong_type(*member, key, "true or false");
    value = member->get<bool>();
  }
}

void read_member(const Json& object, const char* key, int& value) { read_whole_number(object, key, value); }
void read_member(const Json& object, const char* key, int64_t& value) { read_whole_number(object, key, value); }

void read_member(const Json& object, const char* key, double& value) {
  if (const Json* member = member_of(object, key)) {
    if (!member->is_number()) wrong_type(*member, key, "a number");
    value = member->get<double>();
  }
}

void read_member(const Json& object, const char* key, float& value) {
  double wide = value;
  read_member(object, key, wide);
  // A conversion of a number that is too large is undefined.
  if (!(std::abs(wide) <= static_cast<double>(std::numeric_limits<float>::max())))
    fail(ErrorCode::BadFile, "\"{}\" is {}, which is too large", key, wide);
  value = static_cast<float>(wide);
}

Json read_model_json(const std::filesystem::path& path) {
  try {
    return read_json(path);
  } catch (const Error& e) {
    throw Error(e.code(), e.what(), e.hint().suggestions.empty() ? e.hint() : Hint("this is no configuration of a model"));
  }
}

std::string read_text_file(const std::filesystem::path& path, const TextLimits& limits) {
  return read_within(path, [&](uint64_t size) { check_limit("text-bytes", size, limits.bytes, "the file has {}"); });
}

Json read_json(const std::filesystem::path& path, const JsonLimits& limits) {
  const std::string text =
      read_within(path, [&](uint64_t size) { check_json_limit(limits, "json-bytes", size, limits.bytes, "the file has {}"); });
  return in_context(path.string(), [&] { return parse_json(text, limits); });
}

}  // namespace flux2
