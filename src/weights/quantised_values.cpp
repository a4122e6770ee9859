#include "weights/quantised_values.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "weights/eight_bit_scales.h"
#include "weights/quantised_kinds.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace {

constexpr std::string_view kWeight = "weight";
constexpr std::string_view kScales[] = {"weight_scale", "scale_weight", "weight_scale_inv", "SCB"};
constexpr size_t kMaxJson = 1 << 20;

bool is_f8(const StoredTensor& t) { return t.dtype == DType::F8_E4M3 || t.dtype == DType::F8_E5M2; }

// Rows are looked up in it, which knows no scales.
bool is_table(const StoredTensor& t) { return t.name.ends_with("embed_tokens.weight"); }

Json json_in(const StoredTensor& t) {
  if (t.bytes.size() > kMaxJson)
    fail(ErrorCode::BadFile, "{} of {} bytes is not a valid descriptor", printable(t.name), t.bytes.size());
  Json json = in_context(printable(t.name), [&] {
    return parse_json({reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()});
  });
  if (!json.is_object()) fail(ErrorCode::BadFile, "{} is not a JSON object", printable(t.name));
  return json;
}

class QuantisedFinder {
 public:
  QuantisedFinder(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata) : tensors_(tensors) {
    for (const StoredTensor& t : tensors_) by_name_.emplace(t.name, &t);
    const auto described = metadata.find("_quantization_metadata");
    tiled_file_ = described != metadata.end() && described->second.find("nvfp4") != std::string::npos;
    for (const StoredTensor& t : tensors_)
      tiled_file_ = tiled_file_ || t.name.ends_with("_attn.qkv.weight") || t.name.ends_with(".linear1.weight");
  }

  void run() {
    std::vector<std::pair<StoredTensor*, StoredTensor>> changes;  // made last: companions are looked up by the old names
    for (StoredTensor& t : tensors_) {
      if (t.shape.rank() != 2 || !t.name.ends_with(kWeight)) continue;
      if (auto changed = quantised(t)) changes.emplace_back(&t, std::move(*changed));
    }
    by_name_.clear();
    for (auto& [at, changed] : changes) *at = std::move(changed);
    std::erase_if(tensors_, [&](const StoredTensor& t) { return taken_.contains(t.name) || is_marker(t.name); });
  }

 private:
  static bool is_marker(const std::string& name) { return name == "scaled_fp8" || name.ends_with(".scaled_fp8"); }

  const StoredTensor* find(const std::string& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : at->second;
  }

  // The tensor P.NAME beside P.weight; it belongs to the weight from now on.
  const StoredTensor* beside(const StoredTensor& t, std::string_view name) {
    return take(find(t.name.substr(0, t.name.size() - kWeight.size()) + std::string(name)));
  }
  const StoredTensor* behind(const StoredTensor& t, std::string_view name) { return take(find(t.name + std::string(name))); }

  const StoredTensor* take(const StoredTensor* t) {
    if (t) taken_.insert(t->name);
    return t;
  }

  static StoredTensor with_values(StoredTensor t, const char* kind, const Shape& shape,
                                  std::shared_ptr<const QuantisedValues> values) {
    t.dtype_name = kind;
    t.dtype = DType::BF16;
    t.shape = shape;
    t.quantised = std::move(values);
    return t;
  }

  static StoredTensor without_dtype(StoredTensor t, const std::string& why) {
    t.dtype_name = why;
    t.dtype.reset();
    return t;
  }

  std::optional<StoredTensor> quantised(const StoredTensor& t) {
    const StoredTensor* descriptor = beside(t, "comfy_quant");
    const Json says = descriptor ? json_in(*descriptor) : Json::object();
    const std::string format = says.contains("format") && says["format"].is_string() ? says["format"].get<std::string>() : "";
    for (const char* refused : {"mxfp8", "convrot_w4a4", "asym_w4a8_int8", "awq_w4a16"})
      if (format == refused) return without_dtype(t, format);
    check_format(t, format);
    if (is_f8(t)) return quantised_f8(t);
    if (t.dtype == DType::I8) return quantised_int8(t, says);
    if (t.dtype == DType::U8) return quantised_bytes(t, format);
    return std::nullopt;
  }

  static void check_format(const StoredTensor& t, const std::string& format) {
    const bool agrees = format.empty() || (format.starts_with("float8") && is_f8(t)) ||
                        (format == "nvfp4" && t.dtype == DType::U8) || (format == "int8_tensorwise" && t.dtype == DType::I8) ||
                        t.dtype == DType::BF16;
    if (!agrees)
      fail(ErrorCode::BadFile, "{} is described as {} and stored as {}", printable(t.name), printable(format), t.dtype_name);
  }

  const StoredTensor* scale_of(const StoredTensor& t) const {
    for (std::string_view name : kScales)
      if (const StoredTensor* s = find(t.name.substr(0, t.name.size() - kWeight.size()) + std::string(name))) return s;
    return nullptr;
  }

  // One scale per tensor or per row is attached when the tensor is opened.
  std::optional<StoredTensor> quantised_f8(const StoredTensor& t) {
    const StoredTensor* scale = scale_of(t);
    if (!scale || (scales_rows(t, *scale) && !is_table(t))) return std::nullopt;
    take(scale);
    for (const char* unused : {"input_scale", "scale_input"}) beside(t, unused);
    return with_values(t, t.dtype_name.c_str(), t.shape, scaled_values(t, *scale));
  }

  std::optional<StoredTensor> quantised_int8(const StoredTensor& t, const Json& says) {
    const StoredTensor* scale = scale_of(t);
    if (!scale) return std::nullopt;
    const Json& parameters = says.contains("params") && says["params"].is_object() ? says["params"] : says;
    const bool rotated = parameters.contains("convrot") && parameters["convrot"] == true;
    if (!rotated && scales_rows(t, *scale) && !is_table(t)) return std::nullopt;
    take(scale);
    for (const char* unused : {"input_scale", "weight_format"}) beside(t, unused);
    auto values = scaled_values(t, *scale, unit_of(*scale));
    if (rotated) {
      const Json size = parameters.value("convrot_groupsize", Json(256));
      values = rotated_back(std::move(values), t.shape[1], size.is_number_integer() ? size.get<int64_t>() : 0);
    }
    return with_values(t, "I8", t.shape, std::move(values));
  }

  std::optional<StoredTensor> quantised_bytes(const StoredTensor& t, const std::string& format) {
    if (const StoredTensor* global = beside(t, "weight_scale_2")) {
      const StoredTensor* scales = beside(t, "weight_scale");
      if (!scales) fail(ErrorCode::BadFile, "{} has a global scale but no weight_scale", printable(t.name));
      beside(t, "input_scale");
      const Nvfp4Parts parts{t, *scales, *global, beside(t, "pre_quant_scale")};
      const bool tiled = format == "nvfp4" || tiled_file_;
      return with_values(t, "NVFP4", {t.shape[0], 2 * t.shape[1]},
                         nvfp4_values(parts, tiled ? Nvfp4Order::Tiled : Nvfp4Order::Linear));
    }
    if (const StoredTensor* absmax = behind(t, ".absmax")) return quantised_bnb(t, *absmax);
    return without_dtype(t, "U8, quantised by an unknown scheme");
  }

  StoredTensor quantised_bnb(const StoredTensor& t, const StoredTensor& absmax) {
    const StoredTensor *map = behind(t, ".quant_map"), *state = nullptr;
    const char* kind = nullptr;
    for (const auto& [ending, name] :
         {std::pair{".quant_state.bitsandbytes__nf4", "NF4"}, {".quant_state.bitsandbytes__fp4", "FP4"}})
      if (const StoredTensor* found = behind(t, ending)) state = found, kind = name;
    if (!map || !state) fail(ErrorCode::BadFile, "{} has absmax but no quant_map or quant_state", printable(t.name));
    const BnbParts parts{t, absmax, *map, behind(t, ".nested_absmax"), behind(t, ".nested_quant_map"), json_in(*state)};
    return with_values(t, kind, bnb_shape(parts), bnb_values(parts));
  }

  std::vector<StoredTensor>& tensors_;
  std::unordered_map<std::string_view, const StoredTensor*> by_name_;
  std::set<std::string, std::less<>> taken_;
  bool tiled_file_ = false;
};

}  // namespace

void QuantisedValues::blocks(int64_t, std::byte*) const { require(false, "these values have no block type"); }

std::shared_ptr<const QuantisedValues> values_of(const WeightSource& source, const StoredTensor& t) {
  if (t.quantised) return t.quantised;
  const StoredTensor* scale = scale_beside(source, t);
  return scale ? scaled_values(t, *scale, unit_of(*scale)) : nullptr;
}

void attach_quantised_values(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  QuantisedFinder(tensors, metadata).run();
}

}  // namespace flux2
