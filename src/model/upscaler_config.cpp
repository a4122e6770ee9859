#include "model/upscaler_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr int64_t kMostChannels = 4096;
constexpr int kMostBlocks = 1000;
constexpr size_t kMostListed = 10;

std::string dense_name(int block, int dense, int conv, bool older) {
  return older ? fmt::format("model.1.sub.{}.RDB{}.conv{}.0", block, dense, conv)
               : fmt::format("body.{}.rdb{}.conv{}", block, dense, conv);
}

}  // namespace

std::string UpscalerConfig::name() const { return fmt::format("RRDBNet x{}, {} blocks of width {}", scale, blocks, width); }

std::vector<std::pair<std::string, Shape>> upscaler_tensors(const UpscalerConfig& c) {
  std::vector<std::pair<std::string, Shape>> list;
  const auto add = [&](const std::string& name, int64_t out, int64_t in) {
    list.emplace_back(name + ".weight", Shape{out, in, 3, 3});
    list.emplace_back(name + ".bias", Shape{out});
  };
  const auto named = [&](const char* name, const std::string& older) { return c.older_names ? older : std::string(name); };
  add(named("conv_first", "model.0"), c.width, c.inputs());
  for (int block = 0; block < c.blocks; ++block)
    for (int dense = 1; dense <= 3; ++dense)
      for (int conv = 1; conv <= 5; ++conv)
        add(dense_name(block, dense, conv, c.older_names), conv < 5 ? c.growth : c.width, c.width + (conv - 1) * c.growth);
  add(named("conv_body", fmt::format("model.1.sub.{}", c.blocks)), c.width, c.width);
  add(named("conv_up1", "model.3"), c.width, c.width);
  add(named("conv_up2", "model.6"), c.width, c.width);
  add(named("conv_hr", "model.8"), c.width, c.width);
  add(named("conv_last", "model.10"), 3, c.width);
  return list;
}

const StoredTensor* upscaler_sign(const WeightSource& weights) {
  const auto both = [&](const char* first, const std::string& dense) {
    const StoredTensor* sign = weights.find(dense);
    return weights.find(first) ? sign : nullptr;
  };
  const StoredTensor* sign = both("conv_first.weight", dense_name(0, 1, 1, false) + ".weight");
  return sign ? sign : both("model.0.weight", dense_name(0, 1, 1, true) + ".weight");
}

UpscalerConfig detect_upscaler(const WeightSource& weights) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::Incompatible, fmt::format("{}: {}", weights.description(), what),
                "use a safetensors file of an RRDBNet, such as RealESRGAN_x4plus.safetensors");
  };
  const StoredTensor* sign = upscaler_sign(weights);
  if (!sign) refuse("this is not an upscaler: it has no conv_first and body.0.rdb1.conv1");
  UpscalerConfig c;
  c.older_names = sign->name.starts_with("model.");
  const StoredTensor& first = *weights.find(c.older_names ? "model.0.weight" : "conv_first.weight");
  for (const StoredTensor* t : {sign, &first}) {
    const bool filter = t->shape.rank() == 4 && t->shape[2] == 3 && t->shape[3] == 3;
    if (!filter || t->shape[0] < 1 || t->shape[0] > kMostChannels || t->shape[1] < 1 || t->shape[1] > kMostChannels)
      refuse(fmt::format("{} has shape {}; a 3×3 filter is expected", t->name, t->shape));
  }
  c.width = first.shape[0];
  c.growth = sign->shape[0];
  switch (first.shape[1]) {
    case 3: c.scale = 4; break;
    case 12: c.scale = 2; break;
    case 48: c.scale = 1; break;
    default: refuse(fmt::format("{} has {} inputs; 3, 12 and 48 are possible (x4, x2, x1)", first.name, first.shape[1]));
  }
  c.blocks = 0;
  while (c.blocks < kMostBlocks && weights.find(dense_name(c.blocks, 1, 1, c.older_names) + ".weight")) ++c.blocks;

  std::vector<std::string> faults;
  for (const auto& [name, shape] : upscaler_tensors(c)) {
    const StoredTensor* t = weights.find(name);
    if (!t) faults.push_back(fmt::format("{} {} is missing", name, shape));
    else if (t->shape != shape) faults.push_back(fmt::format("{} is {}, expected {}", name, t->shape, shape));
    else if (!t->dtype || !is_float(*t->dtype)) faults.push_back(fmt::format("{} has the type {}", name, t->dtype_name));
  }
  if (!faults.empty()) {
    const size_t shown = std::min(faults.size(), kMostListed), more = faults.size() - shown;
    faults.resize(shown);
    refuse(fmt::format("the upscaler is damaged: {}{}", fmt::join(faults, "; "), more ? fmt::format("; and {} more", more) : ""));
  }
  return c;
}

}  // namespace flux2
