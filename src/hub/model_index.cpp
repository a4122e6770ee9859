#include "hub/model_index.h"

#include <type_traits>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr int64_t kMaxLayer = 1000;
constexpr size_t kMaxStates = 64;

std::vector<int> layer_list(const Json& value, const std::string& where) {
  std::vector<int> layers;
  if (value.is_array() && value.size() <= kMaxStates)
    for (const Json& item : value) {
      const int64_t layer = item.is_number_integer() ? item.get<int64_t>() : 0;
      if (layer > (layers.empty() ? 0 : layers.back()) && layer < kMaxLayer) layers.push_back(static_cast<int>(layer));
    }
  if (layers.empty() || layers.size() != value.size())
    fail(ErrorCode::BadFile, "{}: text_layers must be a list of ascending layer numbers", where);
  return layers;
}

}  // namespace

void apply_model_index(const Json& index, const std::filesystem::path& path, ModelFiles& files) {
  const std::string where = path.string();
  const auto name = index.find("name");
  if (name != index.end() && name->is_string() && !name->get<std::string>().empty())
    files.id = name->get<std::string>();

  const auto section = index.find("flux2");
  if (section == index.end()) return;
  if (!section->is_object()) fail(ErrorCode::BadFile, "{}: flux2 must be an object", where);
  const auto number = [&](const char* key, auto& target, double low, double high) {
    const auto value = section->find(key);
    if (value == section->end()) return;
    if (!value->is_number() || value->get<double>() < low || value->get<double>() > high)
      fail(ErrorCode::BadFile, "{}: {} must be a number from {} to {}", where, key, low, high);
    target = value->get<std::decay_t<decltype(target)>>();
  };
  ModelDefaults& d = files.defaults;
  number("steps", d.steps, 1, 1000);
  number("guidance", d.guidance, 0, 100);
  number("width", d.width, 16, 16384);
  number("height", d.height, 16, 16384);
  number("text_length", d.text_length, 1, 65536);
  const auto layers = section->find("text_layers");
  if (layers != section->end()) d.text_layers = layer_list(*layers, where);
}

}  // namespace flux2
