#include "weights/weight_index.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxIndexBytes = WeightLimits{}.header_bytes;

// A shard lies beside its index or below it. An index comes from outside and must not reach other folders.
void check_file_name(const std::string& name) {
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::BadFile, "the index names the file \"{}\", {}", printable(name), why);
  };
  if (name.empty()) refuse("which is empty");
  if (name.front() == '/') refuse("which is an absolute path");
  if (name.find('\\') != std::string::npos) refuse("which contains a back-slash");
  if (name.size() >= 2 && name[1] == ':') refuse("which begins with a drive letter");
  if (name.find('\0') != std::string::npos) refuse("which contains a zero byte");
  for (const auto& component : std::filesystem::path(name))
    if (component == "..") refuse("which leaves the folder of the index");
}

class Builder : public JsonHandler {
 public:
  WeightIndex index;
  bool has_map = false;

  void key(std::string& name, int depth) override {
    if (depth == 1) section_ = std::move(name);
    else if (depth == 2) key_ = std::move(name);
  }
  void scalar(const Scalar& value, int depth) override {
    if (depth == 0) not_an_index();
    if (section_ == "weight_map") {
      if (depth != 2 || value.kind != Kind::String) not_an_index();
      // One check for each file, not for each of its thousands of tensors.
      auto [file, added] = index.tensors_of_file.try_emplace(std::move(*value.text));
      if (added) check_file_name(file->first);
      file->second.push_back(std::move(key_));
    } else if (section_ == "metadata" && depth == 2 && key_ == "total_size" && value.kind == Kind::Unsigned) {
      index.total_size = value.number;
    }
  }
  void open(bool is_object, int depth) override {
    if (depth == 0 && !is_object) not_an_index();
    if (depth == 0 || section_ != "weight_map") return;
    if (depth != 1 || !is_object || has_map) not_an_index();
    has_map = true;
  }
  void close(int) override {}

 private:
  [[noreturn]] void not_an_index() { fail(ErrorCode::BadFile, "not an index: weight_map must map tensor names to file names"); }

  std::string section_, key_;
};

void check_unique(WeightIndex& index) {
  std::vector<std::string_view> all;
  for (auto& [file, tensors] : index.tensors_of_file) {
    std::sort(tensors.begin(), tensors.end());
    all.insert(all.end(), tensors.begin(), tensors.end());
  }
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  if (twice != all.end()) fail(ErrorCode::BadFile, "the index maps tensor {} twice", printable(*twice));
}

}  // namespace

WeightIndex parse_weight_index(std::string_view text) {
  if (text.size() > kMaxIndexBytes)
    fail(ErrorCode::BadFile, "an index of {} bytes is over the limit of {}", text.size(), kMaxIndexBytes);
  Builder builder;
  walk_json(text, builder, kMaxDepth);
  if (!builder.has_map) fail(ErrorCode::BadFile, "not an index: it has no weight_map");
  check_unique(builder.index);
  return std::move(builder.index);
}

WeightIndex read_weight_index(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, {.bytes = kMaxIndexBytes});
  return in_context(path.string(), [&] { return parse_weight_index(text); });
}

}  // namespace flux2
