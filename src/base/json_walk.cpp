#include "base/json_walk.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace flux2 {

namespace {

class Adapter : public nlohmann::json_sax<nlohmann::json> {
 public:
  Adapter(JsonHandler& handler, int max_depth) : handler_(handler), max_depth_(max_depth) {}

  bool null() override { return scalar({JsonHandler::Kind::Null}); }
  bool boolean(bool value) override { return scalar({JsonHandler::Kind::Bool, value}); }
  bool number_integer(number_integer_t value) override { return scalar({JsonHandler::Kind::Negative, 0, value}); }
  bool number_unsigned(number_unsigned_t value) override { return scalar({JsonHandler::Kind::Unsigned, value}); }
  bool number_float(number_float_t, const string_t&) override { return scalar({JsonHandler::Kind::OtherNumber}); }
  bool string(string_t& value) override { return scalar({JsonHandler::Kind::String, 0, 0, &value}); }
  bool binary(binary_t&) override { return false; }  // JSON text holds none

  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    handler_.key(name, depth_);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& fault) override {
    const bool encoding = std::string_view(fault.what()).find("UTF-8") != std::string_view::npos;
    fail(ErrorCode::BadFile, "not valid {} at byte {}", encoding ? "UTF-8" : "JSON", position);
  }

 private:
  bool scalar(const JsonHandler::Scalar& value) {
    handler_.scalar(value, depth_);
    return true;
  }
  bool open(bool is_object) {
    if (depth_ == max_depth_) fail(ErrorCode::BadFile, "JSON is nested deeper than {}", max_depth_);
    handler_.open(is_object, depth_++);
    return true;
  }
  bool close() {
    handler_.close(--depth_);
    return true;
  }

  JsonHandler& handler_;
  int max_depth_;
  int depth_ = 0;
};

}  // namespace

void walk_json(std::string_view text, JsonHandler& handler, int max_depth) {
  // The parser treats a zero byte as the end of its input and would silently ignore what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    fail(ErrorCode::BadFile, "not valid JSON at byte {}", zero + 1);
  Adapter adapter(handler, max_depth);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &adapter);
}

}  // namespace flux2
