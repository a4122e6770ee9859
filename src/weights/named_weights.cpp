#include "weights/named_weights.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "weights/eight_bit_scales.h"
#include "weights/name_rules.h"

namespace flux2 {

namespace {

using Values = NameRule::Values;

// A way the names of a file may be written.
struct Layout {
  std::string prefix, replacement;
  Dialect dialect = Dialect::Canonical;
};

struct Recognised {
  const NameRule* rule;
  std::string canonical;
  size_t piece;  // which of the rule's diffusers tensors it is
};

std::optional<Recognised> recognise(ModelPart part, const Layout& layout, std::string_view stored) {
  if (!stored.starts_with(layout.prefix)) return std::nullopt;
  const std::string name = layout.replacement + std::string(stored.substr(layout.prefix.size()));
  for (const NameRule& rule : rules_for(part)) {
    if (layout.dialect == Dialect::Canonical) {
      if (match_name(rule.canonical, name)) return Recognised{&rule, name, 0};
      if (rule.alias.empty()) continue;
      if (const auto values = match_name(rule.alias, name)) return Recognised{&rule, fill_name(rule.canonical, *values), 0};
      continue;
    }
    if (layout.dialect == Dialect::Ggml || layout.dialect == Dialect::MistralNative) {
      const std::string_view pattern = layout.dialect == Dialect::Ggml ? rule.ggml : rule.native;
      const auto values = pattern.empty() ? std::nullopt : match_name(pattern, name);
      if (values) return Recognised{&rule, fill_name(rule.canonical, *values), 0};
      continue;
    }
    for (size_t i = 0; i < rule.diffusers.size(); ++i)
      if (const auto values = match_name(rule.diffusers[i], name))
        return Recognised{&rule, fill_name(rule.canonical, *values), i};
  }
  return std::nullopt;
}

// Tensors of a model that also sees: its eyes belong to the text encoder, but have a prefix of their own.
bool is_vision(std::string_view canonical) {
  return canonical.starts_with("vision_tower.") || canonical.starts_with("multi_modal_projector.");
}

// A tensor outside the prefix of the language model that belongs to it all the same: "vision_tower.…", "model.vision_tower.…",
// and the output matrix where only the layers have a prefix.
std::optional<Recognised> recognise_outside(std::string_view stored) {
  for (const char* prefix : {"", "model."}) {
    auto known = recognise(ModelPart::TextEncoder, {prefix, "", Dialect::Canonical}, stored);
    if (known && (is_vision(known->canonical) || known->canonical == "lm_head.weight")) return known;
  }
  return std::nullopt;
}

// The prefixes of the table that occur in the source, a wildcard once for each thing it stands for.
std::vector<Layout> possible_layouts(const WeightSource& source, ModelPart part) {
  std::vector<Layout> layouts{{}};
  for (const PrefixRule& rule : prefixes_for(part)) {
    const size_t star = rule.prefix.find('*');
    if (star == std::string_view::npos) {
      layouts.push_back({std::string(rule.prefix), std::string(rule.replacement)});
      continue;
    }
    const std::string_view before = rule.prefix.substr(0, star), after = rule.prefix.substr(star + 1);
    std::set<std::string> found;
    for (const StoredTensor& t : source.tensors()) {
      if (!t.name.starts_with(before)) continue;
      const size_t dot = t.name.find('.', star);
      if (dot != std::string::npos && t.name.compare(dot, after.size(), after) == 0)
        found.insert(t.name.substr(0, dot + after.size()));
    }
    for (const auto& prefix : found) layouts.push_back({prefix, std::string(rule.replacement)});
  }
  return layouts;
}

// Picks the layout that explains most tensors. A part spread over two prefixes is no model: stripping one of them
// would make up names that the file does not have.
Layout choose_layout(const WeightSource& source, ModelPart part) {
  Layout best;
  size_t most = 0;
  std::set<std::string> prefixes_in_use;
  // In order, the names with a prefix lie side by side: a file whose tensors all have prefixes of their own takes no longer.
  std::vector<std::string_view> names;
  for (const StoredTensor& t : source.tensors()) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  for (Layout layout : possible_layouts(source, part)) {
    const auto first = std::lower_bound(names.begin(), names.end(), std::string_view(layout.prefix));
    const auto last =
        std::partition_point(first, names.end(), [&](std::string_view name) { return name.starts_with(layout.prefix); });
    for (Dialect dialect : {Dialect::Canonical, Dialect::Diffusers, Dialect::Ggml, Dialect::MistralNative}) {
      layout.dialect = dialect;
      const auto count = static_cast<size_t>(std::count_if(first, last, [&](std::string_view name) {
        const auto known = recognise(part, layout, name);
        return known && !is_vision(known->canonical);
      }));
      if (count > 0) prefixes_in_use.insert(layout.prefix);
      if (count > most) {
        most = count;
        best = layout;
      }
    }
  }
  // Multimodal text encoders keep lm_head outside the prefix of their layers.
  if (part != ModelPart::TextEncoder && prefixes_in_use.size() > 1)
    fail(ErrorCode::BadFile, "{} mixes tensors of the {} with the prefix \"{}\" and with \"{}\"", source.description(),
         name_of(part), printable(*prefixes_in_use.begin()), printable(*std::next(prefixes_in_use.begin())));
  return best;
}

IndexRange rows_of(const Shape& shape) { return {0, shape.rank() == 0 ? 1 : shape[0]}; }

std::vector<IndexRange> halves_exchanged(const Shape& shape, std::string_view name) {
  const IndexRange all = rows_of(shape);
  if (all.end % 2 != 0) fail(ErrorCode::BadFile, "tensor {} of shape {} has no two halves", printable(name), shape);
  return {{all.end / 2, all.end}, {0, all.end / 2}};
}

// Converters of Llama-like models reorder the rows of queries and keys so that the two numbers that are turned together
// lie side by side: within a head, row 2i + j of the file is row 64j + i of the original. Qwen3's are left alone.
// Mistral's own files are in that order from the beginning.
bool has_interleaved_heads(const WeightSource& source, Dialect dialect, std::string_view canonical) {
  if (!canonical.ends_with("q_proj.weight") && !canonical.ends_with("k_proj.weight")) return false;
  if (dialect == Dialect::MistralNative) return true;
  const auto named = source.metadata().find("general.architecture");
  return dialect == Dialect::Ggml && named != source.metadata().end() &&
         (named->second == "llama" || named->second == "mistral3");
}

// The width of a head of such files: of a GGUF file in its metadata, of Mistral's own in params.json beside it; 128 where nothing
// says it.
int64_t interleaved_head_width(const WeightSource& source, const StoredTensor& t) {
  constexpr int64_t kUsual = 128, kWidest = 1024;
  int64_t width = kUsual;
  const auto& metadata = source.metadata();
  if (const auto named = metadata.find("general.architecture"); named != metadata.end()) {
    const auto found = metadata.find(named->second + ".attention.key_length");
    if (found != metadata.end()) width = std::strtoll(found->second.c_str(), nullptr, 10);
  } else if (t.file) {
    const auto params = t.file->path().parent_path() / "params.json";
    std::error_code unreadable;
    if (std::filesystem::is_regular_file(params, unreadable)) read_member(read_model_json(params), "head_dim", width);
  }
  if (width < 2 || width > kWidest || width % 2 != 0)
    fail(ErrorCode::BadFile, "{}: heads of width {} are not possible", source.description(), width);
  return width;
}

void add_heads_in_order(std::vector<StoredRows>& rows, const StoredTensor& t, int64_t width) {
  const int64_t half = width / 2;
  const int64_t count = rows_of(t.shape).end;
  if (count % width != 0) fail(ErrorCode::BadFile, "tensor {} of shape {} has no heads of {}", printable(t.name), t.shape, width);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t within = r % width, stored = r - within + 2 * (within % half) + within / half;
    rows.push_back({&t, {stored, stored + 1}});
  }
}

struct Canonical {
  const NameRule* rule;
  std::vector<std::string> values;
};

std::optional<Canonical> canonical_rule(ModelPart part, std::string_view name) {
  for (const NameRule& rule : rules_for(part))
    if (auto values = match_name(rule.canonical, name)) return Canonical{&rule, std::move(*values)};
  return std::nullopt;
}

}  // namespace

NamedWeights::NamedWeights(std::shared_ptr<const WeightSource> source, ModelPart part) : source_(std::move(source)), part_(part) {
  const Layout layout = choose_layout(*source_, part);
  prefix_ = layout.prefix;
  dialect_ = layout.dialect;
  for (const StoredTensor& t : source_->tensors()) {
    const bool inside = t.name.starts_with(prefix_);
    auto known = inside ? recognise(part, layout, t.name) : std::nullopt;
    if (!known && part == ModelPart::TextEncoder && dialect_ != Dialect::Ggml) known = recognise_outside(t.name);
    if (!known && !inside) continue;
    Recipe* recipe = known ? &recipes_[known->canonical] : nullptr;
    if (recipe && recipe->pieces.empty())
      *recipe = {known->rule,
                 std::vector<const StoredTensor*>(dialect_ == Dialect::Diffusers ? known->rule->diffusers.size() : 1)};
    if (recipe && !recipe->pieces[known->piece]) recipe->pieces[known->piece] = &t;
    else unknown_.push_back(t.name);  // not ours, or a second spelling of a tensor we have
  }
  std::erase_if(recipes_, [&](const auto& entry) {
    const auto& pieces = entry.second.pieces;
    if (std::find(pieces.begin(), pieces.end(), nullptr) == pieces.end()) return false;
    for (const StoredTensor* piece : pieces)
      if (piece) unknown_.push_back(piece->name);
    return true;
  });
  std::set<std::string> companions;
  for (const auto& [name, recipe] : recipes_)
    for (const StoredTensor* piece : recipe.pieces)
      for (const StoredTensor* companion : companions_of(*source_, *piece)) companions.insert(companion->name);
  std::erase_if(unknown_, [&](const std::string& name) { return companions.contains(name); });
}

const NamedWeights::Recipe& NamedWeights::recipe(std::string_view canonical) const {
  if (const auto found = recipes_.find(canonical); found != recipes_.end()) return found->second;
  std::string stored;
  if (const auto known = canonical_rule(part_, canonical); known && dialect_ == Dialect::Diffusers)
    for (std::string_view pattern : known->rule->diffusers) {
      const std::string name = prefix_ + fill_name(pattern, known->values);
      if (!source_->find(name)) stored += (stored.empty() ? " (as " : ", ") + name;
    }
  if (!stored.empty()) stored += ")";
  fail(ErrorCode::NotFound, "{} has no tensor {}{}", source_->description(), canonical, stored);
}

Shape NamedWeights::shape_of(std::string_view canonical, const Recipe& recipe) const {
  Shape shape = recipe.pieces.front()->shape;
  for (const StoredTensor* piece : std::span(recipe.pieces).subspan(1)) {
    const bool joins = piece->shape.rank() > 0 && shape.rank() > 0 && piece->shape.with(0, shape[0]) == shape;
    if (!joins)
      fail(ErrorCode::BadFile, "{}: {} of shape {} does not join {} of shape {} into {}", source_->description(), piece->name,
           piece->shape, recipe.pieces.front()->name, recipe.pieces.front()->shape, canonical);
    shape[0] += piece->shape[0];
  }
  if (recipe.rule->values == Values::Convolution1x1 && shape.rank() == 2) shape = shape.append(1).append(1);
  return shape;
}

Shape NamedWeights::shape(std::string_view canonical) const { return shape_of(canonical, recipe(canonical)); }

DType NamedWeights::dtype(std::string_view canonical) const {
  const auto blocks = block_type_of(pieces(canonical));
  return blocks ? *blocks : dtype_of(*recipe(canonical).pieces.front());
}

std::vector<StoredRows> NamedWeights::pieces(std::string_view canonical) const {
  const Recipe& r = recipe(canonical);
  std::vector<StoredRows> rows;
  for (const StoredTensor* piece : r.pieces) {
    if (dialect_ == Dialect::Diffusers && r.rule->values == Values::HalvesExchanged)
      for (const IndexRange& half : halves_exchanged(piece->shape, piece->name)) rows.push_back({piece, half});
    else if (has_interleaved_heads(*source_, dialect_, canonical))
      add_heads_in_order(rows, *piece, interleaved_head_width(*source_, *piece));
    else rows.push_back({piece, all_rows(*piece)});
  }
  return rows;
}

Tensor NamedWeights::open(std::string_view canonical, const Shard& shard) const {
  const std::vector<StoredRows> rows = pieces(canonical);
  const Shape shape = shape_of(canonical, recipe(canonical));
  return in_context(source_->description(), [&] {
    return open_tensor(rows, shape, shard, Quantised::InBlocks).with_scales(scales_of(rows, shape, shard));
  });
}

// The factors of a matrix in 8 bits made of these rows, one for each; undefined where no piece has any.
Tensor NamedWeights::scales_of(std::span<const StoredRows> rows, const Shape& shape, const Shard& shard) const {
  const auto scale_of = [&](const StoredRows& r) { return scale_beside(*source_, *r.tensor); };
  if (std::none_of(rows.begin(), rows.end(), scale_of)) return {};
  std::vector<float> all;
  for (const StoredRows& r : rows) {
    const StoredTensor* scale = scale_of(r);
    const std::vector<float> factors =
        scale ? row_scales(*r.tensor, *scale) : std::vector<float>(static_cast<size_t>(r.tensor->shape[0]), 1.0f);
    all.insert(all.end(), factors.begin() + r.rows.begin, factors.begin() + r.rows.end);
  }
  std::vector<float> kept;
  const bool by_rows = !shard.whole() && shape.axis_of(shard.axis) == 0;
  for (const IndexRange& r : by_rows ? shard.ranges(shape[0]) : std::vector<IndexRange>{{0, shape[0]}})
    kept.insert(kept.end(), all.begin() + r.begin, all.begin() + r.end);
  return Tensor::host_copy(kept.data(), DType::F32, {static_cast<int64_t>(kept.size())});
}

namespace {

size_t offset_of(const StoredTensor& piece) { return static_cast<size_t>(piece.bytes.data() - piece.file->bytes().data()); }

}  // namespace

void NamedWeights::forget_pages(std::string_view canonical) const {
  for (const StoredTensor* piece : recipe(canonical).pieces)
    if (piece->file) piece->file->drop(offset_of(*piece), piece->bytes.size());
}

void NamedWeights::want_pages(std::string_view canonical) const {
  for (const StoredTensor* piece : recipe(canonical).pieces)
    if (piece->file) piece->file->will_need(offset_of(*piece), piece->bytes.size());
}

std::vector<std::string> NamedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, recipe] : recipes_) names.push_back(name);
  return names;
}

std::vector<DiffusersTensor> to_diffusers(ModelPart part, std::string_view canonical, const Shape& shape) {
  const auto known = canonical_rule(part, canonical);
  if (!known) return {{std::string(canonical), shape, {rows_of(shape)}}};
  const auto& [rule, values] = *known;
  if (rule->values == Values::HalvesExchanged)
    return {{fill_name(rule->diffusers[0], values), shape, halves_exchanged(shape, canonical)}};

  Shape stored = shape;
  if (rule->values == Values::Convolution1x1 && shape.rank() == 4 && shape[2] == 1 && shape[3] == 1) stored = shape.first(2);
  const auto count = static_cast<int64_t>(rule->diffusers.size());
  const int64_t rows = rows_of(shape).end / count;
  check(rows * count == rows_of(shape).end, "{} of shape {} does not split into {} equal parts", canonical, shape, count);
  std::vector<DiffusersTensor> result;
  for (int64_t i = 0; i < count; ++i)
    result.push_back({fill_name(rule->diffusers[static_cast<size_t>(i)], values),
                      count == 1 ? stored : stored.with(0, rows),
                      {{i * rows, (i + 1) * rows}}});
  return result;
}

std::string to_ggml(ModelPart part, std::string_view canonical) {
  const auto known = canonical_rule(part, canonical);
  return known && !known->rule->ggml.empty() ? fill_name(known->rule->ggml, known->values) : std::string(canonical);
}

WeightRows::WeightRows(const NamedWeights& weights, const std::string& canonical) {
  for (const StoredRows& piece : weights.pieces(canonical)) {
    starts_.push_back(count_);
    count_ += piece.rows.size();
    pieces_.push_back({piece, values_of(weights.source(), *piece.tensor)});
  }
  const Shape shape = weights.shape(canonical);
  width_ = shape.rank() == 0 ? 1 : shape.with(0, 1).numel();
}

bool WeightRows::stores(DType dtype) const {
  return std::all_of(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return !p.values && p.rows.tensor->dtype == dtype; });
}

void WeightRows::values(int64_t row, float* out) const {
  const auto [piece, at] = find(row);
  if (piece->values) piece->values->rows(at, at + 1, out);
  else read_row(*piece->rows.tensor, at, out);
}

void WeightRows::bytes(int64_t row, DType dtype, std::byte* out) const {
  const auto [piece, at] = find(row);
  const auto size = static_cast<size_t>(bytes_for(dtype, width_));
  std::memcpy(out, piece->rows.tensor->bytes.data() + static_cast<size_t>(at) * size, size);
}

std::pair<const WeightRows::Piece*, int64_t> WeightRows::find(int64_t row) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), row);
  const auto i = static_cast<size_t>(next - starts_.begin()) - 1;
  return {&pieces_[i], row - starts_[i] + pieces_[i].rows.rows.begin};
}

}  // namespace flux2
