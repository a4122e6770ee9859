#include "train/adapters/adapter_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/pattern.h"
#include "model/adapters.h"
#include "model/block_layers.h"

namespace flux2 {

namespace {

bool any_matches(const std::vector<Pattern>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const Pattern& p) { return p.matches(path); });
}

std::vector<Pattern> compiled(const std::vector<std::string>& expressions) { return {expressions.begin(), expressions.end()}; }

std::string file_name_of(std::string path) {
  std::replace(path.begin(), path.end(), '.', '_');
  return "lora_unet_" + path;
}

// What a file has for a layer: native names first; the dotted ones of other trainers name the same fused layers.
template <class Value>
const Value* find_layer(const std::map<std::string, Value>& by_name, const std::string& path) {
  for (const std::string& name : {file_name_of(path), "diffusion_model." + path, "transformer." + path, path})
    if (const auto found = by_name.find(name); found != by_name.end()) return &found->second;
  return nullptr;
}

std::shared_ptr<TrainedChange> new_change(const std::string& path, const Linear& layer, Stream& stream, const AdapterOptions& o,
                                          const ChangeStart& start) {
  const AdapterOptions::Shape* own = find_layer(o.shapes, path);
  const auto [dim, alpha] = own ? *own : AdapterOptions::Shape{o.dim, o.alpha};
  switch (o.form) {
    case AdapterForm::Lora:
      return new_lora(layer, stream, {.dim = dim, .alpha = alpha, .dora = o.dora, .rank_stabilised = o.rank_stabilised}, start);
    case AdapterForm::Loha: return new_loha(layer, stream, dim, alpha, start);
    case AdapterForm::Lokr: return new_lokr(layer, stream, dim, alpha, o.factor, start);
  }
  return nullptr;
}

// Alpha so that alpha / rank is the factor of the file, also where the file has another rule for it.
double alpha_of(const AdapterModule& m) {
  const auto rank = static_cast<double>(m.rank());
  return m.alpha && !m.rank_stabilised && m.factor == 1 ? *m.alpha : m.scale() * rank;
}

// Files may store alpha in BF16.
bool is_same_alpha(double a, double b) { return std::abs(a - b) <= std::max(std::abs(a), std::abs(b)) / 256; }

AdapterOptions::Shape shape_of(const AdapterModule& m) {
  if (m.rank() > 0 || m.kind != AdapterKind::LoKr) return {m.rank(), alpha_of(m)};
  // The second factor is whole: the rank was at least half of its longer side, and ours are stored with the rank as alpha.
  const StoredTensor* whole = m.part("w2");
  const int64_t side = whole && whole->shape.rank() == 2 ? std::max(whole->shape[0], whole->shape[1]) : 1;
  const int64_t least = (side + 1) / 2;
  const double alpha = m.alpha.value_or(0);  // of other trainers: anything
  const int64_t rank = alpha > static_cast<double>(least) && alpha < 1e6 ? std::llround(alpha) : least;
  return {rank, static_cast<double>(rank)};
}

}  // namespace

AdapterNetwork::AdapterNetwork(Flux2Transformer& network, Stream& stream, const AdapterOptions& options, uint64_t seed)
    : options_(options), draws_(std::make_shared<DropoutDraws>()) {
  check(options.dim >= 1, "the rank of an adapter must be at least 1, not {}", options.dim);
  check(options.alpha >= 0, "alpha must not be negative, not {}", options.alpha);
  for (const double rate : {options.dropout.element, options.dropout.rank, options.dropout.module})
    check(rate >= 0 && rate < 1, "a dropout rate must be at least 0 and less than 1, not {}", rate);
  check(!options.dora || options.form == AdapterForm::Lora, "DoRA is supported for LoRA only");
  draws_->seed = seed;
  const auto exclude = compiled(options.exclude), include = compiled(options.include);
  const auto layers = block_layers(network);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& [path, layer] = layers[i];
    if (any_matches(exclude, path) && !any_matches(include, path)) continue;
    auto change = new_change(path, *layer, stream, options, {.seed = seed, .module_index = i});
    change->dropout = options.dropout;
    change->draws = draws_;
    layer->change = change;
    modules_.push_back({path, file_name_of(path), i, layer, std::move(change)});
  }
  check(!modules_.empty(), "the patterns leave no layer to train; a pattern must match a whole path such as \"{}\"",
        layers.empty() ? "" : layers[0].path);
  if (options.form == AdapterForm::Lora && options.activations != DType::F32) keep_rounded_parts();
  list_parameters();
}

void AdapterNetwork::keep_rounded_parts() {
  std::vector<TrainedPart*> parts;
  std::vector<Tensor*> values;
  for (const Module& m : modules_)
    for (TrainedPart& part : m.change->parts()) {
      parts.push_back(&part);
      values.push_back(&part.value);
    }
  rounded_ = RoundedParameters(values, options_.activations);
  for (size_t i = 0; i < parts.size(); ++i) parts[i]->rounded = rounded_[i];
}

void AdapterNetwork::list_parameters() {
  for (const Module& m : modules_)
    for (const TrainedPart& part : m.change->parts())
      parameters_.push_back({m.name + "." + part.role, part.value, part.role == "lora_up.weight"});
}

void AdapterNetwork::begin_pass(const std::vector<uint64_t>& samples, bool training) {
  draws_->samples = samples;
  draws_->active = training;
}

void AdapterNetwork::refresh() {
  rounded_.refresh();
  for (const Module& m : modules_) m.change->refresh(*m.linear);
}

TrainedModel::NormReport AdapterNetwork::limit_norms(double limit) {
  NormReport report;
  for (const Module& m : modules_) {
    const auto limited = m.change->limit_norm(limit);
    check(limited.has_value(), "the norm of the weights can be limited for LoRA only");
    report.scaled += limited->scaled ? 1 : 0;
    report.mean += limited->norm / static_cast<double>(modules_.size());
    report.largest = std::max(report.largest, limited->norm);
  }
  refresh();
  return report;
}

std::vector<std::pair<std::string, Tensor>> AdapterNetwork::tensors() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const Module& m : modules_) {
    for (const TrainedPart& part : m.change->parts()) {
      const std::vector<float> values = part.value.to_floats();
      all.emplace_back(m.name + "." + part.role, Tensor::host_copy(values.data(), DType::F32, part.value.shape()));
    }
    const auto alpha = static_cast<float>(m.change->alpha());
    all.emplace_back(m.name + ".alpha", Tensor::host_copy(&alpha, DType::F32, {}));
  }
  return all;
}

void AdapterNetwork::take_shapes(const std::filesystem::path& file, AdapterOptions& options, const Log& log) {
  std::map<std::string, AdapterOptions::Shape> stored;
  std::map<AdapterOptions::Shape, int> counts;
  for (const AdapterModule& m : read_adapter(file, log).modules) {
    const AdapterOptions::Shape shape = shape_of(m);
    if (shape.dim == 0) continue;
    stored[m.name] = shape;
    ++counts[shape];
  }
  if (stored.empty()) fail(ErrorCode::Incompatible, "{} has no module with a rank", file.string());
  const auto usual =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  options.dim = usual->first.dim;
  options.alpha = usual->first.alpha;
  options.rank_stabilised = false;  // alpha includes it
  options.shapes = std::move(stored);
}

void AdapterNetwork::start_from(const std::filesystem::path& file, const Log& log) {
  std::map<std::string, const AdapterModule*> stored;
  const AdapterFile adapter = read_adapter(file, log);
  for (const AdapterModule& m : adapter.modules) stored[m.name] = &m;
  std::vector<std::string> missing;
  for (const Module& m : modules_) {
    const AdapterModule* const* entry = find_layer(stored, m.path);
    if (!entry) {
      missing.push_back(m.path);
      continue;
    }
    const AdapterModule* found = *entry;
    const bool fits = (found->kind == AdapterKind::Lora && options_.form == AdapterForm::Lora) ||
                      (found->kind == AdapterKind::LoHa && options_.form == AdapterForm::Loha) ||
                      (found->kind == AdapterKind::LoKr && options_.form == AdapterForm::Lokr);
    if (!fits)
      fail(ErrorCode::Incompatible, "{}: {} is a {}, but this run trains another kind of adapter", file.string(), m.path,
           name_of(found->kind));
    const double alpha = alpha_of(*found);
    if (found->rank() > 0 && !is_same_alpha(alpha, m.change->alpha()))  // without a rank, alpha has no effect
      throw Error(ErrorCode::Incompatible,
                  fmt::format("{}: {} has alpha {}, but this run has {}", file.string(), m.path, alpha, m.change->alpha()),
                  Hint("use {0}, or take rank and alpha from the file with {1}",
                       {set_option("network_alpha", fmt::format("{}", alpha)), set_option("dim_from_weights")}));
    for (const TrainedPart& part : m.change->parts()) {
      static const std::map<std::string, std::string> kRoles = {
          {"lora_down.weight", "down"}, {"lora_up.weight", "up"}, {"dora_scale", "magnitude"},
          {"hada_w1_a", "w1_a"},        {"hada_w1_b", "w1_b"},    {"hada_w2_a", "w2_a"},
          {"hada_w2_b", "w2_b"},        {"lokr_w1", "w1"},        {"lokr_w2", "w2"},
          {"lokr_w2_a", "w2_a"},        {"lokr_w2_b", "w2_b"}};
      const StoredTensor* values = found->part(kRoles.at(part.role));
      if (!values) fail(ErrorCode::Incompatible, "{}: {} has no {}", file.string(), m.path, part.role);
      const HostMatrix matrix = matrix_of(*values);
      if (matrix.rows * matrix.columns != part.value.numel() || matrix.rows != part.value.dim(0))
        throw Error(
            ErrorCode::Incompatible,
            fmt::format("{}: {} has rank {}, but this run has rank {}", file.string(), m.path, found->rank(), options_.dim),
            Hint("use {0}, or take rank and alpha from the file with {1}",
                 {set_option("network_dim", fmt::format("{}", found->rank())), set_option("dim_from_weights")}));
      part.value.stream().upload(part.value.raw(), matrix.values.data(), matrix.values.size() * sizeof(float));
    }
  }
  if (missing.size() == modules_.size())
    fail(ErrorCode::Incompatible, "{} has no layer of this model under a name that training can continue from", file.string());
  if (!missing.empty())
    log.warn("{} has no values for {} of {} layers, such as {}; they start as new", file.string(), missing.size(),
             modules_.size(), missing[0]);
  refresh();
}

void AdapterNetwork::attach_for_sampling(Flux2Transformer& copy) const {
  const auto layers = block_layers(copy);
  for (const Module& m : modules_) layers[m.layer].layer->change = m.change->for_sampling();
}

}  // namespace flux2
