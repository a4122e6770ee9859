#include "model/adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"
#include "weights/named_weights.h"

namespace flux2 {

namespace {

// The width of the model for which a layer has `found` instead of `expected`; both are multiples of the width.
int64_t width_for(int64_t found, int64_t expected, int64_t hidden) {
  return expected % hidden == 0 ? found / (expected / hidden) : 0;
}

void check_extents(const AdapterModule& m, const AdapterTarget& t, const AdapterFile& file, const Flux2Config& config) {
  const AdapterModule::Extents e = m.extents();
  if (e.out == t.rows.size() && (e.in == 0 || e.in == t.in)) return;
  const int64_t width = width_for(e.out, t.rows.size(), config.hidden);
  throw Error(
      ErrorCode::Incompatible,
      fmt::format(
          "{}: the adapter is for {} (width {}), the model is {} (width {}): {} changes a layer [{}, {}], {} has [{}, {}]",
          file.source->description(), size_for_width(width), width, config.name(), config.hidden, printable(m.name), e.out, e.in,
          t.weight, t.rows.size(), t.in),
      "use the adapter with the model it was trained on");
}

// Where row i of a module lies in the weight.
int64_t row_in_weight(const AdapterTarget& t, int64_t i) {
  return t.rows.begin + (t.halves_exchanged ? (i + t.rows.size() / 2) % t.rows.size() : i);
}

std::vector<const Adapter::Change*> changes_of(const Adapter& adapter, const std::string& weight) {
  std::vector<const Adapter::Change*> list;
  for (const Adapter::Change& c : adapter.changes())
    if (c.target.weight == weight) list.push_back(&c);
  return list;
}

bool is_beside(const AdapterUse& use, const std::string& weight) { return use.pairs && use.pairs->contains(weight); }

std::map<std::string, Linear*> layers_of(Flux2Transformer& n) {
  std::map<std::string, Linear*> layers = {{"img_in", &n.img_in},
                                           {"txt_in", &n.txt_in},
                                           {"time_in.in_layer", &n.time_in.in},
                                           {"time_in.out_layer", &n.time_in.out},
                                           {"guidance_in.in_layer", &n.guidance_in.in},
                                           {"guidance_in.out_layer", &n.guidance_in.out},
                                           {"double_stream_modulation_img.lin", &n.img_modulation},
                                           {"double_stream_modulation_txt.lin", &n.txt_modulation},
                                           {"single_stream_modulation.lin", &n.single_modulation},
                                           {"final_layer.adaLN_modulation.1", &n.final_modulation},
                                           {"final_layer.linear", &n.final_linear}};
  for (size_t i = 0; i < n.double_blocks.size(); ++i)
    for (auto [name, s] : {std::pair{"img", &n.double_blocks[i].img}, {"txt", &n.double_blocks[i].txt}}) {
      const std::string p = fmt::format("double_blocks.{}.{}_", i, name);
      layers[p + "attn.qkv"] = &s->qkv;
      layers[p + "attn.proj"] = &s->proj;
      layers[p + "mlp.0"] = &s->mlp_in;
      layers[p + "mlp.2"] = &s->mlp_out;
    }
  for (size_t i = 0; i < n.single_blocks.size(); ++i) {
    layers[fmt::format("single_blocks.{}.linear1", i)] = &n.single_blocks[i].in;
    layers[fmt::format("single_blocks.{}.linear2", i)] = &n.single_blocks[i].out;
  }
  return layers;
}

// diffusers' names of the rows of a weight that a change is about.
std::vector<std::string> diffusers_names(const AdapterTarget& target, const Shape& shape) {
  std::vector<std::string> names;
  for (const DiffusersTensor& d : to_diffusers(ModelPart::Transformer, target.weight, shape))
    if (std::any_of(d.rows.begin(), d.rows.end(),
                    [&](const IndexRange& r) { return r.begin < target.rows.end && target.rows.begin < r.end; }))
      names.push_back(d.name);
  return names;
}

// Which changes an expression is about, in the first way of naming layers in which it is about any.
std::vector<bool> changes_named(const std::string& expression, const std::vector<Adapter::Change>& changes,
                                const Flux2Config& config) {
  const Pattern pattern(expression);
  std::map<std::string, Shape> shapes;
  Flux2Transformer(config).visit([&](const Parameter& p) { shapes[p.name] = p.shape; });
  using Names = std::vector<std::string>;
  const std::function<Names(const Adapter::Change&)> namings[] = {
      [](const Adapter::Change& c) { return Names{c.target.weight}; },
      [](const Adapter::Change& c) { return Names{c.module.first_key()}; },
      [&](const Adapter::Change& c) { return diffusers_names(c.target, shapes.at(c.target.weight)); }};
  std::vector<bool> named(changes.size());
  for (const auto& names_of : namings) {
    for (size_t i = 0; i < changes.size(); ++i) {
      const Names names = names_of(changes[i]);
      named[i] = std::any_of(names.begin(), names.end(), [&](const std::string& name) { return pattern.found_in(name); });
    }
    if (std::find(named.begin(), named.end(), true) != named.end()) break;
  }
  return named;
}

constexpr int64_t kChunkElements = 4 << 20;  // of a weight that is being merged: 16 MB as f32

}  // namespace

Adapter::Adapter(AdapterFile file, const Flux2Config& config, const std::string& layers) : file_(std::move(file)) {
  const AdapterTargets targets(config);
  for (const AdapterModule& m : file_.modules) {
    const AdapterTarget* t = targets.find(m.name);
    if (!t) {
      unmatched_.push_back(m.name);
      continue;
    }
    check_extents(m, *t, file_, config);
    changes_.push_back({*t, m});
  }
  if (changes_.empty()) {
    std::vector<std::string> first;
    for (size_t i = 0; i < std::min<size_t>(3, file_.modules.size()); ++i)
      first.push_back(printable(file_.modules[i].first_key()));
    fail(ErrorCode::Incompatible, "{} changes no layer of {}; its first keys are {}", file_.source->description(), config.name(),
         fmt::join(first, ", "));
  }
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const Change& a, const Change& b) { return a.target.weight < b.target.weight; });
  if (layers.empty()) return;
  const size_t both = layers.find("&!");
  const std::string use = layers[0] == '!' ? "" : layers.substr(0, both);
  const std::string leave = layers[0] == '!' ? layers.substr(1) : both == layers.npos ? "" : layers.substr(both + 2);
  const std::string first = changes_.front().target.weight;
  std::vector<bool> kept(changes_.size(), true);
  if (!use.empty()) kept = changes_named(use, changes_, config);
  if (!leave.empty()) {
    const std::vector<bool> left = changes_named(leave, changes_, config);
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = kept[i] && !left[i];
  }
  size_t at = 0;
  std::erase_if(changes_, [&](const Change&) { return !kept[at++]; });
  if (changes_.empty())
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("the pattern \"{}\" excludes all layers of {}", layers, file_.source->description()),
                "its first layer is " + first);
}

std::optional<LowRankPair> low_rank_change(const Adapter& adapter, const std::string& weight, int64_t out, int64_t in) {
  const auto changes = changes_of(adapter, weight);
  std::vector<AdapterChange> pieces;
  std::vector<int64_t> first;  // of its rows among the joint downs
  int64_t rank = 0;
  for (const Adapter::Change* c : changes) {
    if (c->module.kind != AdapterKind::Lora || c->module.part("magnitude")) return std::nullopt;
    pieces.emplace_back(c->module);
    const auto same = std::find_if(pieces.begin(), pieces.end() - 1,
                                   [&](const AdapterChange& p) { return p.down().values == pieces.back().down().values; });
    const bool is_new = same == pieces.end() - 1;
    first.push_back(is_new ? rank : first[static_cast<size_t>(same - pieces.begin())]);
    if (is_new) rank += pieces.back().down().rows;
  }
  if (pieces.empty()) return std::nullopt;
  LowRankPair pair{HostMatrix(rank, in), HostMatrix(out, rank)};
  for (size_t p = 0; p < pieces.size(); ++p) {
    const AdapterTarget& t = changes[p]->target;
    const HostMatrix &a = pieces[p].down(), &b = pieces[p].up();
    std::copy(a.values.begin(), a.values.end(), pair.down.row(first[p]));
    for (int64_t i = 0; i < b.rows; ++i) {
      float* to = pair.up.row(row_in_weight(t, i)) + first[p];
      for (int64_t k = 0; k < b.columns; ++k) to[k] += b.row(i)[k];
    }
  }
  return pair;
}

HostMatrix weight_values(const NamedWeights& weights, const std::string& name) {
  const WeightRows rows(weights, name);
  HostMatrix m(rows.count(), rows.width());
  for (int64_t r = 0; r < m.rows; ++r) rows.values(r, m.row(r));
  return m;
}

ReadRow MergedRows::Part::rows_of(const ReadRow& weight) const {
  return [this, &weight](int64_t row, float* out) { weight(row_in_weight(target, row), out); };
}

MergedRows::MergedRows(ReadRow weight, const Shape& shape, const std::string& name, const std::vector<AdapterUse>& uses)
    : weight_(std::move(weight)), columns_(shape[1]) {
  for (const AdapterUse& use : uses)
    for (const Adapter::Change* c : changes_of(*use.adapter, name))
      if (use.strength != 0) changes_.push_back({c->target, AdapterChange(c->module), static_cast<float>(use.strength)});
  for (Part& part : changes_) part.change.look_at(part.rows_of(weight_));
}

void MergedRows::rows(int64_t first, int64_t last, float* out, ThreadPool& threads) const {
  threads.parallel_ranges(last - first, 16, [&](int64_t begin, int64_t end) {
    begin += first, end += first;
    float* sums = out + (begin - first) * columns_;
    for (int64_t r = begin; r < end; ++r) weight_(r, sums + (r - begin) * columns_);
    for (const Part& part : changes_) {
      const IndexRange& all = part.target.rows;
      const int64_t half = part.target.halves_exchanged ? all.size() / 2 : 0;
      for (int64_t r = std::max(begin, all.begin), stop; r < std::min(end, all.end); r = stop) {
        // Rows of the module that lie one after the other in the weight: all of them, or one of the exchanged halves.
        stop = std::min(end, half > 0 && r < all.begin + half ? all.begin + half : all.end);
        const int64_t row = half > 0 ? (r - all.begin + half) % all.size() : r - all.begin;
        part.change.add_rows(row, row + stop - r, part.rows_of(weight_), columns_, part.strength, sums + (r - begin) * columns_);
      }
    }
  });
}

Tensor merged_weight(const NamedWeights& weights, const std::string& name, const std::vector<AdapterUse>& uses,
                     ThreadPool& threads) {
  const WeightRows base(weights, name);
  const MergedRows merged([&](int64_t row, float* out) { base.values(row, out); }, weights.shape(name), name, uses);
  const bool wide = weights.dtype(name) == DType::F32;
  const Tensor all = Tensor::host_empty(wide ? DType::F32 : DType::BF16, weights.shape(name));
  const int64_t chunk = std::max<int64_t>(1, kChunkElements / base.width());
  std::vector<float> values(wide ? 0 : static_cast<size_t>(std::min(chunk, base.count()) * base.width()));
  for (int64_t r = 0; r < base.count(); r += chunk) {
    const int64_t end = std::min(base.count(), r + chunk), at = r * base.width(), count = (end - r) * base.width();
    merged.rows(r, end, wide ? all.data<float>() + at : values.data(), threads);
    for (int64_t i = 0; !wide && i < count; ++i) all.data<bf16>()[at + i] = to_bf16(values[static_cast<size_t>(i)]);
  }
  return all;
}

std::shared_ptr<const AdapterPairs> pairs_of(const Adapter& adapter, const Flux2Config& config, Stream& stream,
                                             DType activations) {
  Flux2Transformer skeleton(config);
  auto pairs = std::make_shared<AdapterPairs>();
  const auto tensor = [&](const HostMatrix& m) {
    return Tensor::from<float>(stream, activations, {m.rows, m.columns}, m.values);
  };
  for (const auto& [name, layer] : layers_of(skeleton))
    if (const auto pair = low_rank_change(adapter, name + ".weight", layer->out, layer->in))
      pairs->emplace(name + ".weight", Lora{tensor(pair->down), tensor(pair->up), 1.0});
  return pairs;
}

int64_t adapter_bytes(const std::shared_ptr<const Adapter>& adapter, const NamedWeights& weights, bool merge, DType activations) {
  std::map<std::string, int64_t> ranks;  // of the weights that are changed beside them
  std::set<std::string> merged;
  for (const Adapter::Change& c : adapter->changes()) {
    const bool beside = !merge && c.module.kind == AdapterKind::Lora && !c.module.part("magnitude");
    if (beside) ranks[c.target.weight] += c.module.rank();
    else merged.insert(c.target.weight);
  }
  int64_t bytes = 0;
  for (const auto& [name, rank] : ranks)
    if (!merged.contains(name)) bytes += bytes_for(activations, rank * (weights.shape(name)[0] + weights.shape(name)[1]));
  for (const std::string& name : merged)
    bytes += bytes_for(weights.dtype(name) == DType::F32 ? DType::F32 : DType::BF16, weights.shape(name).numel());
  return bytes;
}

int64_t merged_weight_bytes(const NamedWeights& weights, const std::vector<AdapterUse>& uses) {
  std::set<std::string> changed;
  for (const AdapterUse& use : uses)
    for (const Adapter::Change& c : use.adapter->changes())
      if (use.strength != 0 && !is_beside(use, c.target.weight)) changed.insert(c.target.weight);
  int64_t bytes = 0;
  for (const std::string& name : changed)
    bytes += bytes_for(weights.dtype(name) == DType::F32 ? DType::F32 : DType::BF16, weights.shape(name).numel());
  return bytes;
}

bool is_merged(const AdapterUse& use) {
  if (use.strength == 0) return false;
  const auto& changes = use.adapter->changes();
  return std::any_of(changes.begin(), changes.end(), [&](const Adapter::Change& c) { return !is_beside(use, c.target.weight); });
}

void put_beside(Flux2Transformer& network, const std::vector<AdapterUse>& uses) {
  for (auto& [name, layer] : layers_of(network)) {
    layer->adapters.clear();
    for (const AdapterUse& use : uses) {
      if (use.strength == 0 || !is_beside(use, name + ".weight")) continue;
      const Lora& pair = use.pairs->at(name + ".weight");
      layer->adapters.push_back({pair.down, pair.up, use.strength});
    }
  }
}

void merge_into(Flux2Transformer& network, const NamedWeights& weights, const std::vector<AdapterUse>& uses, Stream& stream) {
  ThreadPool threads(0);
  for (auto& [name, layer] : layers_of(network)) {
    const std::string weight = name + ".weight";
    std::vector<AdapterUse> merged;
    for (const AdapterUse& use : uses)
      if (use.strength != 0 && !is_beside(use, weight) && !changes_of(*use.adapter, weight).empty()) merged.push_back(use);
    if (merged.empty()) continue;
    const Tensor changed = merged_weight(weights, weight, merged, threads);
    // Weights of blocks that are streamed to a GPU stay in host memory.
    layer->weight = layer->weight.on_host_only() ? changed : changed.to(stream);
  }
}

}  // namespace flux2
