#include "model/adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "base/error.h"
#include "base/shown.h"
#include "weights/packed_values.h"

namespace flux2 {

namespace {

const char* size_named(int64_t width) {
  return width == 3072 ? "klein 4B" : width == 4096 ? "klein 9B" : width == 6144 ? "dev" : "a custom size";
}

// The extents a module implies without computing it; 0 where its matrices do not tell.
struct Extents {
  int64_t out = 0, in = 0;
};

Extents extents_of(const AdapterModule& m) {
  // Extents come from outside: what is larger than any layer must not overflow a product.
  const auto extent = [](int64_t n) { return std::min(n, int64_t{1} << 31); };
  const auto rows = [&](const char* role) { return m.part(role)->shape.rank() ? extent(m.part(role)->shape[0]) : 1; };
  const auto columns = [&](const char* role) {
    return extent(m.part(role)->shape.numel() / std::max<int64_t>(1, m.part(role)->shape.rank() ? m.part(role)->shape[0] : 1));
  };
  const auto factor = [&](const std::string& w) {
    return m.part(w) ? Extents{rows(w.c_str()), columns(w.c_str())}
                     : Extents{rows((w + "_a").c_str()), columns((w + "_b").c_str())};
  };
  switch (m.kind) {
    case AdapterKind::Lora: return {rows("up"), columns("down")};
    case AdapterKind::LoHa: return {rows("w1_a"), columns("w1_b")};
    case AdapterKind::LoKr: return {factor("w1").out * factor("w2").out, factor("w1").in * factor("w2").in};
    case AdapterKind::Oft: return {rows("blocks") * extent(m.part("blocks")->shape[1]), 0};
    case AdapterKind::Difference: return {rows("diff"), columns("diff")};
  }
  return {};
}

// What width a model must have for a layer that has `found` instead of `expected`, both multiples of the width.
int64_t width_for(int64_t found, int64_t expected, int64_t hidden) {
  return expected % hidden == 0 ? found / (expected / hidden) : 0;
}

void check_extents(const AdapterModule& m, const AdapterTarget& t, const AdapterFile& file, const Flux2Config& config) {
  const Extents e = extents_of(m);
  if (e.out == t.rows.size() && (e.in == 0 || e.in == t.in)) return;
  const int64_t width = width_for(e.out, t.rows.size(), config.hidden);
  throw Error(
      ErrorCode::Incompatible,
      fmt::format(
          "{}: the adapter is for {} (width {}), the model is {} (width {}): {} changes a layer [{}, {}], {} has [{}, {}]",
          file.source->description(), size_named(width), width, config.name(), config.hidden, shown(m.name), e.out, e.in,
          t.weight, t.rows.size(), t.in),
      "use the adapter with the model it was trained on");
}

// Where row i of a module lies in the weight.
int64_t row_in_weight(const AdapterTarget& t, int64_t i) {
  return t.rows.begin + (t.halves_exchanged ? (i + t.rows.size() / 2) % t.rows.size() : i);
}

HostMatrix part_of(const HostMatrix& w, const AdapterTarget& t) {
  HostMatrix part(t.rows.size(), w.columns);
  for (int64_t i = 0; i < part.rows; ++i) std::copy_n(w.row(row_in_weight(t, i)), w.columns, part.row(i));
  return part;
}

void add_part(HostMatrix& sum, const HostMatrix& part, const AdapterTarget& t) {
  for (int64_t i = 0; i < part.rows; ++i) {
    float* to = sum.row(row_in_weight(t, i));
    for (int64_t j = 0; j < part.columns; ++j) to[j] += part.row(i)[j];
  }
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

std::regex pattern_of(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& e) {
    fail(ErrorCode::InvalidArgument, "\"{}\" is not a regular expression: {}", text, e.what());
  }
}

// In 16 bits, or in 32 where the weight has them.
Tensor as_weight(const HostMatrix& m, DType stored) {
  if (stored == DType::F32) return Tensor::host_copy(m.values.data(), DType::F32, {m.rows, m.columns});
  const Tensor t = Tensor::host_empty(DType::BF16, {m.rows, m.columns});
  for (size_t i = 0; i < m.values.size(); ++i) t.data<bf16>()[i] = to_bf16(m.values[i]);
  return t;
}

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
    for (size_t i = 0; i < std::min<size_t>(3, file_.modules.size()); ++i) first.push_back(shown(file_.modules[i].first_key()));
    fail(ErrorCode::Incompatible, "{} changes no layer of {}; its first keys are {}", file_.source->description(), config.name(),
         fmt::join(first, ", "));
  }
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const Change& a, const Change& b) { return a.target.weight < b.target.weight; });
  if (layers.empty()) return;
  const bool leave = layers[0] == '!';
  const std::regex pattern = pattern_of(layers.substr(leave ? 1 : 0));
  const std::string first = changes_.front().target.weight;
  std::erase_if(changes_, [&](const Change& c) { return std::regex_search(c.target.weight, pattern) == leave; });
  if (changes_.empty())
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("the pattern \"{}\" leaves nothing of {}", layers, file_.source->description()),
                "its first layer is " + first);
}

std::optional<LowRankPair> low_rank_change(const Adapter& adapter, const std::string& weight, int64_t out, int64_t in,
                                           ThreadPool& threads) {
  const auto changes = changes_of(adapter, weight);
  std::vector<AdapterChange> pieces;
  int64_t rank = 0;
  for (const Adapter::Change* c : changes) {
    if (c->module.kind != AdapterKind::Lora || c->module.part("magnitude")) return std::nullopt;
    pieces.emplace_back(c->module, threads);
    rank += pieces.back().down().rows;
  }
  if (pieces.empty()) return std::nullopt;
  LowRankPair pair{HostMatrix(rank, in), HostMatrix(out, rank)};
  int64_t first = 0;
  for (size_t p = 0; p < pieces.size(); ++p) {
    const AdapterTarget& t = changes[p]->target;
    const HostMatrix &a = pieces[p].down(), &b = pieces[p].up();
    std::copy(a.values.begin(), a.values.end(), pair.down.row(first));
    for (int64_t i = 0; i < b.rows; ++i) std::copy_n(b.row(i), b.columns, pair.up.row(row_in_weight(t, i)) + first);
    first += a.rows;
  }
  return pair;
}

HostMatrix weight_values(const NamedWeights& weights, const std::string& name) {
  const Shape shape = weights.shape(name);
  HostMatrix m(shape[0], shape[1]);
  int64_t row = 0;
  for (const StoredRows& piece : weights.pieces(name)) {
    const auto packed = values_of(weights.source(), *piece.tensor);
    for (int64_t r = piece.rows.begin; r < piece.rows.end; ++r, ++row) {
      if (packed) packed->rows(r, r + 1, m.row(row));
      else read_row(*piece.tensor, r, m.row(row));
    }
  }
  return m;
}

HostMatrix merged_weight(const HostMatrix& weight, const std::string& name, const std::vector<AdapterUse>& uses,
                         ThreadPool& threads) {
  HostMatrix sum = weight;
  for (const AdapterUse& use : uses)
    for (const Adapter::Change* c : changes_of(*use.adapter, name)) {
      HostMatrix delta(c->target.rows.size(), weight.columns);
      AdapterChange(c->module, threads).add_to(delta, part_of(weight, c->target), use.strength, threads);
      add_part(sum, delta, c->target);
    }
  return sum;
}

std::shared_ptr<const AdapterPairs> pairs_of(const Adapter& adapter, const Flux2Config& config, Stream& stream, DType activations) {
  ThreadPool threads(0);
  Flux2Transformer skeleton(config);
  auto pairs = std::make_shared<AdapterPairs>();
  const auto tensor = [&](const HostMatrix& m) { return Tensor::from<float>(stream, activations, {m.rows, m.columns}, m.values); };
  for (const auto& [name, layer] : layers_of(skeleton))
    if (const auto pair = low_rank_change(adapter, name + ".weight", layer->out, layer->in, threads))
      pairs->emplace(name + ".weight", Lora{tensor(pair->down), tensor(pair->up), 1.0});
  return pairs;
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
    const Tensor changed =
        as_weight(merged_weight(weight_values(weights, weight), weight, merged, threads), weights.dtype(weight));
    // Weights that take turns on a GPU wait for it in host memory.
    layer->weight = layer->weight.on_host_only() ? changed : changed.to(stream);
  }
}

}  // namespace flux2
