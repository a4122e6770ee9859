#include "model/vit_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

}  // namespace

JsonBeside::JsonBeside(const WeightSource& weights, const char* name) {
  for (const StoredTensor& t : weights.tensors()) {
    if (!t.file) continue;
    path = t.file->path().parent_path() / name;
    std::error_code unreadable;
    if (fs::is_regular_file(path, unreadable)) json = read_model_json(path);
    if (!json.is_object()) fail(ErrorCode::BadFile, "{}: expected an object, found {}", path.string(), json.type_name());
    break;
  }
}

void JsonBeside::enter(const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return;
  if (!found->is_object()) fail(ErrorCode::BadFile, "{}: {} must be an object", path.string(), key);
  json = Json(*found);
}

double JsonBeside::number(const char* key, double otherwise, double low, double high) const {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return otherwise;
  const double value = found->is_number() ? found->get<double>() : NAN;
  if (!(value >= low && value <= high))
    fail(ErrorCode::BadFile, "{}: {} must be a number from {} to {}", path.string(), key, low, high);
  return value;
}

void JsonBeside::colours(const char* key, std::array<float, 3>& values, double low) const {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return;
  const bool three = found->is_array() && found->size() == 3 && std::all_of(found->begin(), found->end(), [&](const Json& v) {
                       return v.is_number() && v.get<double>() >= low && v.get<double>() <= 1000;
                     });
  if (!three) fail(ErrorCode::BadFile, "{}: {} must be three numbers from {}", path.string(), key, low);
  for (size_t i = 0; i < 3; ++i) values[i] = (*found)[i].get<float>();
}

Shape size_tensor(const WeightSource& weights, const std::string& name, const SizeRule& rule, const std::string& advice) {
  const StoredTensor* t = weights.find(name);
  if (!t) throw Error(ErrorCode::BadFile, fmt::format("{}: the tensor {} is missing", weights.description(), name), advice);
  const bool fits = t->shape.rank() == rule.rank &&
                    std::all_of(t->shape.begin(), t->shape.end(), [&](int64_t n) { return n >= 1 && n <= rule.most; });
  if (!fits)
    throw Error(ErrorCode::BadFile, fmt::format("{}: the tensor {} has the shape {}", weights.description(), name, t->shape),
                advice);
  return t->shape;
}

int64_t image_side(const WeightSource& weights, const PositionRule& positions, const std::string& advice) {
  const int64_t tokens = positions.shape[positions.shape.rank() - 2];
  const int64_t patches = std::llround(std::sqrt(static_cast<double>(tokens - 1))), side = patches * positions.patch;
  if (patches < 1 || patches * patches + 1 != tokens || side > positions.most_side)
    throw Error(ErrorCode::Incompatible,
                fmt::format("{}: {} has the shape {}, which is not one token and a square of patches", weights.description(),
                            positions.name, positions.shape),
                advice);
  return side;
}

int64_t head_count(const WeightSource& weights, const JsonBeside& config, int64_t hidden, const std::string& advice) {
  const double usual = static_cast<double>(std::max<int64_t>(1, hidden / 64));
  const auto heads = static_cast<int64_t>(config.number("num_attention_heads", usual, 1, 1024));
  if (hidden % heads != 0)
    throw Error(ErrorCode::Incompatible,
                fmt::format("{}: a width of {} cannot be divided into {} heads", weights.description(), hidden, heads), advice);
  return heads;
}

int64_t count_layers(const WeightSource& weights, const std::string& prefix) {
  constexpr int kMostLayers = 1000;
  const std::string start = prefix + ".";
  int64_t layers = 0;
  for (const StoredTensor& t : weights.tensors()) {
    if (!t.name.starts_with(start)) continue;
    int index = -1;
    const char* end = t.name.data() + t.name.size();
    const auto [behind, wrong] = std::from_chars(t.name.data() + start.size(), end, index);
    if (wrong == std::errc() && behind < end && *behind == '.' && index >= 0 && index < kMostLayers)
      layers = std::max<int64_t>(layers, index + 1);
  }
  return layers;
}

void check_vit(const WeightSource& weights, const std::function<void(const ParameterVisitor&)>& visit, const std::string& what,
               const std::string& advice) {
  constexpr size_t kMostListed = 10;
  std::vector<std::string> faults;
  visit([&](const Parameter& p) {
    const StoredTensor* t = weights.find(p.name);
    if (!t) faults.push_back(fmt::format("{} {} is missing", p.name, p.shape));
    else if (t->shape != p.shape) faults.push_back(fmt::format("{} is {}, expected {}", p.name, t->shape, p.shape));
    else if (!t->dtype || !is_float(*t->dtype)) faults.push_back(fmt::format("{} has the type {}", p.name, t->dtype_name));
  });
  if (faults.empty()) return;
  const size_t shown = std::min(faults.size(), kMostListed), more = faults.size() - shown;
  faults.resize(shown);
  throw Error(ErrorCode::BadFile,
              fmt::format("{}: {} is damaged: {}{}", weights.description(), what, fmt::join(faults, "; "),
                          more ? fmt::format("; and {} more", more) : ""),
              advice);
}

void load_vit_tensors(const WeightSource& weights, const std::function<void(const ParameterVisitor&)>& visit, Stream& stream) {
  visit([&](const Parameter& p) {
    const Tensor stored = weights.open(p.name).to(stream).cast(DType::F32);
    constexpr std::array<int, 4> kChannelsLast{0, 2, 3, 1};
    p.tensor = p.kind == ParameterKind::Conv ? stored.permuted(kChannelsLast).contiguous() : stored;
  });
  stream.wait();
}

}  // namespace flux2
