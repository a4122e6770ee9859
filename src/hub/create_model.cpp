#include "hub/create_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

// The keys of one table; each is taken once, and what is left is a mistake.
class Table {
 public:
  Table(const Json& parent, const char* name) : name_(name) {
    if (!parent.contains(name)) return;
    check(parent[name].is_object(), "{} must be a table", name);
    values_ = parent[name];
  }
  Table(const Json& whole) : values_(whole) { check(whole.is_object(), "the description of a model is a table"); }

  void number(const char* key, int64_t& value, int64_t low, int64_t high) {
    const Json* found = take(key);
    if (!found) return;
    check(found->is_number_integer() && *found >= low && *found <= high, "{}{}: must be a whole number between {} and {}",
          prefix(), key, low, high);
    value = found->get<int64_t>();
  }
  void number(const char* key, int& value, int64_t low, int64_t high) {
    int64_t wide = value;
    number(key, wide, low, high);
    value = static_cast<int>(wide);
  }
  void number(const char* key, double& value, double low, double high) {
    const Json* found = take(key);
    if (!found) return;
    check(found->is_number() && *found >= low && *found <= high, "{}{}: must be a number between {} and {}", prefix(), key, low,
          high);
    value = found->get<double>();
  }
  void numbers(const char* key, std::vector<int>& values, int64_t low, int64_t high) {
    const Json* found = take(key);
    if (!found) return;
    const auto good = [&] {
      if (!found->is_array() || found->empty() || found->size() > 16) return false;
      for (const Json& item : *found)
        if (!item.is_number_integer() || item < low || item > high) return false;
      return true;
    };
    check(good(), "{}{}: must be a list of whole numbers between {} and {}", prefix(), key, low, high);
    values = found->get<std::vector<int>>();
    for (size_t i = 1; i < values.size(); ++i) check(values[i] > values[i - 1], "{}{}: must be ascending", prefix(), key);
  }
  void sizes(const char* key, std::vector<std::pair<int, int>>& values) {
    const Json* found = take(key);
    if (!found) return;
    const auto side = [](const Json& s) { return s.is_number_integer() && s >= 16 && s <= 4096 && s.get<int>() % 16 == 0; };
    check(found->is_array(), "{}{}: must be a list such as [[128, 128], [192, 128]]", prefix(), key);
    for (const Json& size : *found) {
      check(size.is_array() && size.size() == 2 && side(size[0]) && side(size[1]),
            "{}{}: a size is [width, height], both multiples of 16", prefix(), key);
      values.emplace_back(size[0].get<int>(), size[1].get<int>());
    }
  }
  void text(const char* key, std::string& value) {
    const Json* found = take(key);
    if (!found) return;
    check(found->is_string(), "{}{}: must be a text", prefix(), key);
    value = found->get<std::string>();
    const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.'; };
    check(!value.empty() && value.size() <= 64 && std::all_of(value.begin(), value.end(), good) && value[0] != '.',
          "{}{}: a name has lower-case letters, digits, - and _", prefix(), key);
  }
  void table(const char* key) { take(key); }

  void finish() const {
    for (const auto& entry : values_.items()) {
      if (std::find(known_.begin(), known_.end(), entry.key()) != known_.end()) continue;
      const std::string near = nearest_word(entry.key(), known_);
      fail(ErrorCode::InvalidArgument, "unknown key \"{}{}\"{}", prefix(), printable(entry.key()),
           near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
    }
  }

 private:
  const Json* take(const char* key) {
    known_.emplace_back(key);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &*found;
  }
  std::string prefix() const { return name_.empty() ? "" : name_ + "."; }

  std::string name_;
  Json values_ = Json::object();
  std::vector<std::string> known_;
};

}  // namespace

SynthOptions model_from_description(const Json& description) {
  constexpr int64_t kWidest = 65536, kDeepest = 1000;
  SynthOptions options;
  options.base = true;
  options.name = "pico";
  Table whole(description);
  whole.text("name", options.name);
  for (const char* part : {"transformer", "autoencoder", "text_encoder", "defaults"}) whole.table(part);
  whole.finish();

  Flux2Config transformer{.hidden = 256, .double_blocks = 2, .single_blocks = 5};
  Table t(description, "transformer");
  t.number("hidden", transformer.hidden, 128, kWidest);
  t.number("double_blocks", transformer.double_blocks, 0, kDeepest);
  t.number("single_blocks", transformer.single_blocks, 0, kDeepest);
  t.finish();

  int64_t width = 32;
  Table a(description, "autoencoder");
  a.number("width", width, 32, 1024);
  int64_t groups =
      std::clamp<int64_t>(width / 4, 1, 32);  // four channels in a group of the finest level, at most the 32 of FLUX.2
  a.number("norm_groups", groups, 1, 1024);
  a.finish();
  check(width % groups == 0, "autoencoder.width ({}) must be a multiple of norm_groups ({})", width, groups);
  options.vae = VaeConfig{.encoder_widths = {width, 2 * width, 4 * width, 4 * width},
                          .decoder_widths = {width, 2 * width, 4 * width, 4 * width},
                          .norm_groups = static_cast<int>(groups)};

  DecoderConfig text{.vocab = 1024,
                     .hidden = 128,
                     .intermediate = 384,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = 32,
                     .layers = 7,
                     .states = {2, 4, 6}};
  Table e(description, "text_encoder");
  e.number("vocabulary", text.vocab, 262, 1'000'000);
  e.number("hidden", text.hidden, 16, kWidest);
  e.number("intermediate", text.intermediate, 16, kWidest);
  e.number("layers", text.layers, 1, kDeepest);
  e.number("heads", text.heads, 1, 1024);
  e.number("kv_heads", text.kv_heads, 1, 1024);
  e.number("head_dim", text.head_dim, 8, 1024);
  e.numbers("states", text.states, 1, kDeepest);
  e.finish();
  check(text.heads % text.kv_heads == 0, "text_encoder.heads ({}) must be a multiple of kv_heads ({})", text.heads,
        text.kv_heads);
  check(text.head_dim % 2 == 0, "text_encoder.head_dim must be even, not {}", text.head_dim);
  check(text.states.back() <= text.layers, "text_encoder.states: there is no layer {}", text.states.back());
  transformer.text_width = text.output_width();
  options.text_encoder = text;
  options.transformer = transformer;

  ModelDefaults defaults{.steps = 20, .guidance = 4, .width = 128, .height = 128, .text_length = 64};
  Table d(description, "defaults");
  d.number("steps", defaults.steps, 1, 1000);
  d.number("guidance", defaults.guidance, 1.0, 100.0);
  d.number("width", defaults.width, 16, 4096);
  d.number("height", defaults.height, 16, 4096);
  d.number("text_length", defaults.text_length, 16, 4096);
  d.sizes("sizes", options.sizes);
  d.finish();
  check(defaults.width % 16 == 0 && defaults.height % 16 == 0, "defaults: width and height must be multiples of 16");
  options.defaults = defaults;
  return options;
}

}  // namespace flux2
