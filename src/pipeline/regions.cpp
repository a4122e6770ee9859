#include "pipeline/regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ops/embedding.h"

namespace flux2 {

namespace {

constexpr uint8_t kInside = 128;

// Tokens that see the same. A region's text and references have one bit, a token of the image those of its regions; no bit means
// the request's own text and references, and the background.
struct TokenClass {
  enum Kind { Text, Image, Reference } kind = Text;
  uint64_t regions = 0;

  bool operator==(const TokenClass&) const = default;
};

// The order of the single blocks. What sees each other lies together where possible: first the background between its text and
// the regions, then each region with its text behind it.
auto place_of(const TokenClass& c) {
  const int first_region = c.regions == 0 ? 0 : std::countr_zero(c.regions) + 1;
  const bool text = c.kind == TokenClass::Text, image = c.kind == TokenClass::Image;
  const int within = c.regions == 0 ? (text ? 0 : image ? 1 : 2) : (image ? 0 : text ? 2 : 1);
  return std::tuple(first_region, within, c.regions);
}

bool sees(const TokenClass& a, const TokenClass& b, RegionPass pass) {
  const auto any = [&](TokenClass::Kind kind) { return a.kind == kind || b.kind == kind; };
  if (a == b) return true;
  if (pass == RegionPass::Negative && (any(TokenClass::Text) || !any(TokenClass::Reference))) return true;
  if (any(TokenClass::Reference)) {
    const auto is_everyones = [](const TokenClass& c) { return c.kind == TokenClass::Reference && c.regions == 0; };
    return is_everyones(a) || is_everyones(b) || (a.regions & b.regions) != 0;
  }
  if (!any(TokenClass::Text)) return a.regions == 0 || b.regions == 0 || (a.regions & b.regions) != 0;
  if (!any(TokenClass::Image)) return false;
  const TokenClass &text = a.kind == TokenClass::Text ? a : b, &image = a.kind == TokenClass::Text ? b : a;
  return text.regions == 0 ? image.regions == 0 : (text.regions & image.regions) != 0;
}

// The class of every row: text, image, references.
std::vector<TokenClass> classes_of(const Request& request, RegionPass pass, int64_t text_rows,
                                   const ReferenceTokens& references) {
  std::vector<TokenClass> rows;
  if (pass == RegionPass::Negative) {
    rows.insert(rows.end(), static_cast<size_t>(text_rows), {TokenClass::Text, 0});
  } else {
    const bool own = uses_own_prompt(request);
    const auto texts = static_cast<int64_t>(request.regions.size()) + (own ? 1 : 0);
    require(text_rows % texts == 0, "{} rows of {} texts", text_rows, texts);
    for (int64_t i = 0; i < texts; ++i) {
      const int64_t region = own ? i - 1 : i;
      rows.insert(rows.end(), static_cast<size_t>(text_rows / texts), {TokenClass::Text, region < 0 ? 0 : uint64_t{1} << region});
    }
  }
  for (const uint64_t regions : regions_of_tokens(request)) rows.push_back({TokenClass::Image, regions});
  for (const int region : references.regions) rows.push_back({TokenClass::Reference, region < 0 ? 0 : uint64_t{1} << region});
  return rows;
}

RowClasses row_classes(const std::vector<TokenClass>& rows, RegionPass pass) {
  std::vector<TokenClass> distinct = rows;
  const auto before = [](const TokenClass& a, const TokenClass& b) { return place_of(a) < place_of(b); };
  std::sort(distinct.begin(), distinct.end(), before);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  RowClasses classes;
  for (const TokenClass& row : rows)
    classes.of_row.push_back(
        static_cast<int>(std::lower_bound(distinct.begin(), distinct.end(), row, before) - distinct.begin()));
  for (const TokenClass& a : distinct) {
    auto& line = classes.sees.emplace_back();
    for (const TokenClass& b : distinct) line.push_back(sees(a, b, pass));
  }
  return classes;
}

Tensor ids_on(Stream& stream, const std::vector<int32_t>& ids) {
  return Tensor::from<int32_t>(stream, DType::I32, {static_cast<int64_t>(ids.size())}, ids);
}

bool any_references(const Request& request) {
  return std::any_of(request.regions.begin(), request.regions.end(), [](const Region& r) { return !r.references.empty(); });
}

}  // namespace

std::string RegionText::text() const {
  return box ? fmt::format("{}@{},{},{},{}", prompt, box->x, box->y, box->width, box->height) : prompt;
}

RegionText parse_region(std::string_view text) {
  const size_t at = text.rfind('@');
  if (at != text.npos && four_numbers(text.substr(at + 1)))
    return {std::string(text.substr(0, at)), parse_box(text.substr(at + 1))};
  return {std::string(text), std::nullopt};
}

RegionFile parse_region_file(std::string_view text) {
  const size_t colon = text.find(':');
  RegionFile file;
  const char* begin = text.data();
  const char* end = begin + (colon == text.npos ? 0 : colon);
  const auto [stop, failure] = std::from_chars(begin, end, file.region);
  check(colon != text.npos && failure == std::errc() && stop == end && file.region >= 1 && file.region <= kMostRegions &&
            colon + 1 < text.size(),
        "\"{}\" is not N:FILE, with the number of a region from 1 to {} and an image", printable(text), kMostRegions);
  file.file = text.substr(colon + 1);
  return file;
}

std::vector<uint64_t> regions_of_tokens(const Request& request) {
  std::vector<uint64_t> tokens(static_cast<size_t>(request.tokens()));
  const int64_t rows = request.rows(), columns = request.columns();
  for (size_t r = 0; r < request.regions.size(); ++r) {
    const Image& mask = *request.regions[r].mask;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        const auto x = static_cast<int>((2 * column + 1) * mask.width / (2 * columns));
        const auto y = static_cast<int>((2 * row + 1) * mask.height / (2 * rows));
        if (*mask.at(x, y) >= kInside) tokens[static_cast<size_t>(row * columns + column)] |= uint64_t{1} << r;
      }
  }
  return tokens;
}

bool uses_own_prompt(const Request& request) {
  if (request.regions.empty()) return true;
  const auto tokens = regions_of_tokens(request);
  return std::find(tokens.begin(), tokens.end(), uint64_t{0}) != tokens.end();
}

std::vector<std::string> prompts_of(const Request& request) {
  std::vector<std::string> prompts;
  if (uses_own_prompt(request)) prompts.push_back(request.prompt);
  for (const Region& region : request.regions) prompts.push_back(region.prompt);
  return prompts;
}

void cut_regions(Request& request, int width, int height, const Box& part) {
  const std::vector<Region> all = std::exchange(request.regions, {});
  std::vector<Region> kept;
  for (Region region : all) {
    region.mask = std::make_shared<const Image>(crop_extended(scaled_mask(*region.mask, width, height), part));
    request.regions = {region};
    if (regions_of_tokens(request) != std::vector<uint64_t>(static_cast<size_t>(request.tokens()), 0)) kept.push_back(region);
  }
  request.regions = std::move(kept);
}

void check_regions(const Request& request) {
  const auto& regions = request.regions;
  if (regions.empty()) return;
  check(regions.size() <= kMostRegions, "{} regions: at most {} are possible", regions.size(), kMostRegions);
  for (size_t r = 0; r < regions.size(); ++r) {
    const auto& mask = regions[r].mask;
    check(mask && mask->channels == 1 && mask->width > 0 && mask->height > 0 &&
              mask->pixels.size() == mask->row_bytes() * static_cast<size_t>(mask->height),
          "region {} has no mask with one channel", r + 1);
  }
  const auto tokens = regions_of_tokens(request);
  for (size_t r = 0; r < regions.size(); ++r)
    check(std::any_of(tokens.begin(), tokens.end(), [&](uint64_t set) { return (set >> r & 1) != 0; }),
          "region {} is too small, or outside the part that is generated: it contains the middle of no block of 16x16 pixels",
          r + 1);
  const size_t sets = std::set<uint64_t>(tokens.begin(), tokens.end()).size();
  check(sets <= kMostRegionSets, "the regions overlap in {} different ways: at most {} are possible", sets, kMostRegionSets);
  check(!request.tile_x && !request.tile_y, "a seamless image cannot have regions");
  check(!request.given_text.defined(), "text states were given, so the prompts of regions cannot be used");
  const bool with_references = any_references(request) || !request.references.empty();
  check(!request.references_at_zero || !with_references,
        "an adapter conditions references on time 0, which does not work together with regions");
  check(!request.reuse_reference_keys || !any_references(request),
        "the keys of references are reused in every step, so a region cannot have references of its own");
}

double visible_share(const Request& request, int64_t text_length) {
  if (request.regions.empty()) return 1;
  ReferenceTokens references;
  const auto add = [&](const auto& pictures, int region) {
    for (const auto& picture : pictures)
      references.regions.insert(references.regions.end(), static_cast<size_t>(picture->height / 16 * (picture->width / 16)),
                                region);
  };
  add(request.references, -1);
  for (size_t r = 0; r < request.regions.size(); ++r) add(request.regions[r].references, static_cast<int>(r));
  const auto texts = static_cast<int64_t>(prompts_of(request).size());
  const RowClasses classes =
      row_classes(classes_of(request, RegionPass::Positive, texts * text_length, references), RegionPass::Positive);
  std::vector<double> rows(classes.sees.size());
  for (const int c : classes.of_row) rows[static_cast<size_t>(c)] += 1;
  double pairs = 0;
  for (size_t a = 0; a < rows.size(); ++a)
    for (size_t b = 0; b < rows.size(); ++b)
      if (classes.sees[a][b]) pairs += rows[a] * rows[b];
  const auto all = static_cast<double>(classes.of_row.size());
  return pairs / (all * all);
}

std::shared_ptr<const TokenGroups> region_groups(Stream& stream, const Request& request, RegionPass pass, int64_t text_rows,
                                                 const ReferenceTokens& references, const Rope& rope) {
  const auto is_of_region = [](int region) { return region >= 0; };
  const bool hidden = std::any_of(references.regions.begin(), references.regions.end(), is_of_region);
  if (request.regions.empty() || (pass == RegionPass::Negative && !hidden)) return nullptr;
  const std::vector<TokenClass> rows = classes_of(request, pass, text_rows, references);
  RowClasses classes = row_classes(rows, pass);
  const std::vector<int> of_row = classes.of_row;
  // Whether it comes before another row in the order of attention, and in the streams.
  const auto before = [&](int32_t a, int32_t b) { return of_row[static_cast<size_t>(a)] < of_row[static_cast<size_t>(b)]; };
  const int64_t target_end = text_rows + request.tokens();
  const int64_t queries = target_end + (request.reuse_reference_keys ? 0 : references.count());

  std::vector<int32_t> streams(static_cast<size_t>(queries));  // rows of text, target, references, each sorted
  std::iota(streams.begin(), streams.end(), 0);
  const auto first_target = streams.begin() + text_rows, first_reference = streams.begin() + target_end;
  std::stable_sort(first_target, first_reference, before);
  std::stable_sort(first_reference, streams.end(), before);
  std::vector<int32_t> places(streams.size());  // in `streams`, in the order of attention
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int32_t a, int32_t b) {
    return before(streams[static_cast<size_t>(a)], streams[static_cast<size_t>(b)]);
  });

  auto groups = std::make_shared<TokenGroups>();
  const auto part_of = [&](int64_t at) { return at < text_rows ? 0 : at < target_end ? 1 : 2; };
  std::vector<int32_t> order, back(static_cast<size_t>(request.tokens())), inverse(places.size()), targets, sorted;
  for (const int32_t row : std::span(streams).subspan(static_cast<size_t>(text_rows)))
    order.push_back(row - static_cast<int32_t>(text_rows));
  for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t at = places[i];
    const bool continues = i > 0 && places[i - 1] + 1 == at && part_of(at - 1) == part_of(at), is_text = part_of(at) == 0;
    if (!continues) groups->pieces.push_back({.is_text = is_text, .first = is_text ? at : at - text_rows});
    ++groups->pieces.back().rows;
    inverse[static_cast<size_t>(at)] = static_cast<int32_t>(i);
    if (part_of(at) == 1) targets.push_back(static_cast<int32_t>(i));
    sorted.push_back(streams[static_cast<size_t>(at)]);
    classes.of_row[i] = of_row[static_cast<size_t>(sorted.back())];
  }
  groups->all = group_rows(stream, classes, queries);
  groups->last = group_rows(stream, classes, targets);
  groups->order = ids_on(stream, order);
  groups->back = ids_on(stream, back);
  const Tensor all = ids_on(stream, inverse);
  groups->text = all.narrowed(0, 0, text_rows).cloned();
  groups->image = all.narrowed(0, text_rows, queries - text_rows).cloned();
  groups->target = ids_on(stream, targets);
  const auto rope_of = [&](const Rope& from, const Tensor& ids) {
    return Rope{embedding(ids, from.cosine, DType::F32), embedding(ids, from.sine, DType::F32), from.pairs};
  };
  groups->rope = rope_of(rope, ids_on(stream, sorted));
  groups->target_rope = rope_of(groups->rope, groups->target);
  return groups;
}

}  // namespace flux2
