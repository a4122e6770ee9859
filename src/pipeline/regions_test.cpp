#include "pipeline/regions.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend/cpu/cpu_device.h"
#include "pipeline/check_request.h"
#include "pipeline/latents.h"
#include "pipeline/texts_to_images.h"

namespace flux2 {
namespace {

std::shared_ptr<const Image> box_mask(int width, int height, const Box& box) {
  Image mask(width, height, 1);
  add_box(mask, box);
  return std::make_shared<const Image>(std::move(mask));
}

Request with_boxes(const std::vector<Box>& boxes, int width = 64, int height = 64) {
  Request request;
  request.width = width, request.height = height;
  for (const Box& box : boxes) request.regions.push_back({.prompt = "a", .mask = box_mask(width, height, box)});
  return request;
}

std::string failure_of(const Request& request) {
  try {
    check_regions(request);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Regions, TextForms) {
  const RegionText box = parse_region("mail a@b.c@16,0,32,64");
  EXPECT_EQ(box.prompt, "mail a@b.c");
  ASSERT_TRUE(box.box);
  EXPECT_EQ(*box.box, (Box{16, 0, 32, 64}));
  EXPECT_EQ(box.text(), "mail a@b.c@16,0,32,64");
  EXPECT_FALSE(parse_region("a cat @ home").box);
  EXPECT_EQ(parse_region("a cat @ home").prompt, "a cat @ home");
  EXPECT_THROW(parse_region("a@0,0,0,4"), Error);
  const RegionFile file = parse_region_file("2:a:b.png");
  EXPECT_EQ(file.region, 2u);
  EXPECT_EQ(file.file, "a:b.png");
  for (const char* wrong : {"a.png", "0:a.png", "17:a.png", "1:", "x:a.png", ":a"}) EXPECT_THROW(parse_region_file(wrong), Error);
}

TEST(Regions, TokenBelongsToTheRegionOfItsMiddle) {
  // 4 × 4 tokens. The second box begins beside the middle of the second column.
  const Request request = with_boxes({{0, 0, 32, 64}, {25, 0, 39, 16}});
  const auto tokens = regions_of_tokens(request);
  EXPECT_EQ(tokens[0], 1u);
  EXPECT_EQ(tokens[1], 1u);
  EXPECT_EQ(tokens[2], 2u);
  EXPECT_EQ(tokens[7], 0u);
  EXPECT_TRUE(uses_own_prompt(request));
  EXPECT_EQ(prompts_of(request).size(), 3u);
  const Request whole = with_boxes({{0, 0, 32, 64}, {32, 0, 32, 64}});
  EXPECT_FALSE(uses_own_prompt(whole));
  EXPECT_EQ(prompts_of(whole).size(), 2u);
}

TEST(Regions, MaskOfAnotherSizeIsStretched) {
  Request request = with_boxes({{0, 0, 32, 64}});
  const auto before = regions_of_tokens(request);
  request.regions[0].mask = box_mask(256, 256, {0, 0, 128, 256});
  EXPECT_EQ(regions_of_tokens(request), before);
}

TEST(Regions, PartOfAnImageHasTheRegionsThere) {
  Request request = with_boxes({{0, 0, 32, 64}, {32, 0, 32, 64}, {0, 0, 64, 16}});
  request.width = 128, request.height = 64;  // the lower right quarter, enlarged
  cut_regions(request, 64, 64, {24, 32, 40, 20});
  ASSERT_EQ(request.regions.size(), 2u);
  const auto tokens = regions_of_tokens(request);
  EXPECT_EQ(tokens[0], 1u);
  EXPECT_EQ(tokens[7], 2u);
}

TEST(Regions, ImpossibleOnesAreRefused) {
  EXPECT_EQ(failure_of(with_boxes({{0, 0, 32, 32}})), "");
  EXPECT_NE(failure_of(with_boxes({{0, 0, 8, 8}})).find("too small"), std::string::npos);
  EXPECT_NE(failure_of(with_boxes(std::vector<Box>(17, {0, 0, 64, 64}))).find("at most 16"), std::string::npos);
  Request request = with_boxes({{0, 0, 32, 32}});
  request.tile_x = true;
  EXPECT_NE(failure_of(request).find("seamless"), std::string::npos);
  Image damaged(64, 64, 1);
  damaged.pixels.pop_back();
  for (const auto& mask :
       {std::shared_ptr<const Image>(), std::make_shared<const Image>(64, 64, 3), std::make_shared<const Image>(damaged)}) {
    request = with_boxes({{0, 0, 32, 32}});
    request.regions[0].mask = mask;
    EXPECT_NE(failure_of(request).find("no mask with one channel"), std::string::npos);
  }
  request = with_boxes({{0, 0, 32, 32}});
  request.reuse_reference_keys = true;
  EXPECT_EQ(failure_of(request), "");
  request.regions[0].references.push_back(std::make_shared<const Planes>());
  EXPECT_NE(failure_of(request).find("reused"), std::string::npos);
  request.reuse_reference_keys = false;
  request.references_at_zero = true;
  EXPECT_NE(failure_of(request).find("time 0"), std::string::npos);
  // Stripes whose bits count up: 128 different sets.
  request = with_boxes(std::vector<Box>(7, {0, 0, 16, 16}), 2048, 64);
  for (size_t r = 0; r < 7; ++r) {
    Image mask(2048, 64, 1);
    for (int column = 0; column < 128; ++column)
      if ((column >> r & 1) != 0) add_box(mask, {16 * column, 0, 16, 64});
    request.regions[r].mask = std::make_shared<const Image>(std::move(mask));
  }
  EXPECT_NE(failure_of(request).find("128 different ways"), std::string::npos);
}

TEST(Regions, RequestsWithRegionsRunAlone) {
  const Request a = with_boxes({{0, 0, 32, 32}}), plain = with_boxes({});
  EXPECT_TRUE(can_run_together(plain, plain));
  EXPECT_FALSE(can_run_together(a, a));
  EXPECT_FALSE(can_run_together(a, plain));
}

// Which rows see which, read back from the groups, against the rules of regions.h applied to every pair.
class RegionGroups : public testing::Test {
 protected:
  std::shared_ptr<Stream> stream = open_cpu()->open_stream();

  static std::vector<std::vector<bool>> matrix(const AttentionGroups& groups) {
    std::vector<std::vector<bool>> sees(static_cast<size_t>(groups.queries), std::vector<bool>(static_cast<size_t>(groups.keys)));
    for (const auto& batch : groups.batches) {
      const auto ids = [&](const RowList& list) {
        std::vector<int32_t> all;
        if (list.ids.defined()) return list.ids.to_ints();
        for (int64_t i = 0; i < batch.groups * list.rows; ++i) all.push_back(static_cast<int32_t>(list.first + i));
        return all;
      };
      const auto queries = ids(batch.queries), keys = ids(batch.keys);
      for (int64_t g = 0; g < batch.groups; ++g)
        for (int64_t q = 0; q < batch.queries.rows; ++q)
          for (int64_t k = 0; k < batch.keys.rows; ++k)
            sees[static_cast<size_t>(queries[static_cast<size_t>(g * batch.queries.rows + q)])]
                [static_cast<size_t>(keys[static_cast<size_t>(g * batch.keys.rows + k)])] = true;
    }
    return sees;
  }

  // The row of [text; image; references] at each place of the order of attention.
  static std::vector<int64_t> rows_of(const TokenGroups& groups, int64_t text_rows) {
    std::vector<int64_t> rows;
    const auto order = groups.order.to_ints();
    for (const TokenGroups::Piece& p : groups.pieces)
      for (int64_t i = p.first; i < p.first + p.rows; ++i)
        rows.push_back(p.is_text ? i : text_rows + order[static_cast<size_t>(i)]);
    return rows;
  }

  std::shared_ptr<const TokenGroups> groups_of(const Request& request, RegionPass pass, int64_t text_rows,
                                               const ReferenceTokens& references) {
    auto positions = text_positions(text_rows);
    const auto picture = picture_positions(request.rows(), request.columns());
    positions.insert(positions.end(), picture.begin(), picture.end());
    positions.insert(positions.end(), references.positions.begin(), references.positions.end());
    return region_groups(*stream, request, pass, text_rows, references, flux2_rope(*stream, positions));
  }
};

TEST_F(RegionGroups, FollowTheRules) {
  constexpr int64_t kText = 3;
  // Two regions that overlap in one column, and background; a reference of everybody and one of region 2.
  const Request request = with_boxes({{0, 0, 32, 48}, {16, 0, 32, 48}});
  ReferenceTokens references;
  references.positions = {{10, 0, 0, 0}, {10, 0, 1, 0}, {20, 0, 0, 0}};
  references.regions = {-1, -1, 1};
  const auto groups = groups_of(request, RegionPass::Positive, 3 * kText, references);
  ASSERT_TRUE(groups);
  const auto tokens = regions_of_tokens(request);
  const int64_t text = 3 * kText, image = request.tokens(), all = text + image + 3;
  // -1: image, otherwise the region of a text (0: none) …
  const auto sees = [&](int64_t a, int64_t b) {
    if (a > b) std::swap(a, b);
    const auto bits = [&](int64_t i) {
      return i < text               ? (i < kText ? 0 : uint64_t{1} << (i / kText - 1))
             : i < text + image     ? tokens[static_cast<size_t>(i - text)]
             : i < text + image + 2 ? 0
                                    : 2;
    };
    const bool a_text = a < text, b_text = b < text, a_reference = a >= text + image, b_reference = b >= text + image;
    if (a_text && b_text) return a / kText == b / kText;
    if (b_reference && b < all - 1) return true;  // everybody's reference
    if (a_reference && a < all - 1) return true;
    if (b_reference) return a_reference || (bits(a) & bits(b)) != 0;
    if (a_text) return bits(a) == 0 ? bits(b) == 0 : (bits(a) & bits(b)) != 0;
    return bits(a) == 0 || bits(b) == 0 || (bits(a) & bits(b)) != 0;
  };
  const auto joined = matrix(groups->all), last = matrix(groups->last);
  const std::vector<int64_t> rows = rows_of(*groups, text);
  std::vector<int64_t> targets;  // in the order of attention
  for (const int64_t row : rows)
    if (row >= text && row < text + image) targets.push_back(row);
  ASSERT_EQ(static_cast<int64_t>(joined.size()), all);
  ASSERT_EQ(static_cast<int64_t>(last.size()), image);
  ASSERT_EQ(static_cast<int64_t>(targets.size()), image);
  const auto at = [](int64_t k) { return static_cast<size_t>(k); };
  for (int64_t i = 0; i < all; ++i)
    for (int64_t j = 0; j < all; ++j) EXPECT_EQ(joined[at(i)][at(j)], sees(rows[at(i)], rows[at(j)])) << i << " " << j;
  for (int64_t i = 0; i < image; ++i)
    for (int64_t j = 0; j < all; ++j) EXPECT_EQ(last[at(i)][at(j)], sees(targets[at(i)], rows[at(j)])) << i << " " << j;
  const auto order = groups->order.to_ints(), back = groups->back.to_ints();
  for (int64_t i = 0; i < image; ++i) EXPECT_EQ(order[at(back[at(i)])], static_cast<int32_t>(i));
}

// Streams that are joined and cut again are what they were, and the target is found between the others.
TEST_F(RegionGroups, PiecesAreOfBothOrders) {
  constexpr int64_t kText = 6;
  const Request request = with_boxes({{0, 0, 32, 48}, {16, 0, 32, 48}});
  ReferenceTokens references;
  references.positions = {{10, 0, 0, 0}, {20, 0, 0, 0}, {30, 0, 0, 0}};
  references.regions = {1, -1, 1};
  const auto groups = groups_of(request, RegionPass::Positive, kText, references);
  const int64_t image = request.tokens() + 3;
  const auto numbered = [&](int64_t rows, float first) {
    std::vector<float> values(static_cast<size_t>(2 * rows));  // two samples
    std::iota(values.begin(), values.end(), first);
    return Tensor::from<float>(*stream, DType::F32, {2, rows, 1}, values);
  };
  const Tensor txt = numbered(kText, 0), img = numbered(image, 1000), joined = groups->joined(txt, img);
  const auto streams = groups->streams(joined);
  EXPECT_EQ(streams[0].to_floats(), txt.to_floats());
  EXPECT_EQ(streams[1].to_floats(), img.to_floats());
  EXPECT_EQ(take_rows(joined, groups->target).to_floats(), img.narrowed(1, 0, request.tokens()).to_floats());
}

TEST_F(RegionGroups, NegativePassIsWholeUnlessReferencesAreHidden) {
  const Request request = with_boxes({{0, 0, 32, 64}});
  EXPECT_FALSE(groups_of(request, RegionPass::Negative, 4, {}));
  EXPECT_FALSE(groups_of(with_boxes({}), RegionPass::Positive, 4, {}));
  ReferenceTokens references;
  references.positions = {{10, 0, 0, 0}};
  references.regions = {0};
  const auto groups = groups_of(request, RegionPass::Negative, 4, references);
  ASSERT_TRUE(groups);
  const auto by_place = matrix(groups->all);
  const auto rows = rows_of(*groups, 4);
  std::vector<size_t> place(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) place[static_cast<size_t>(rows[i])] = i;
  const auto sees = [&](size_t a, size_t b) { return by_place[place[a]][place[b]]; };
  const auto tokens = regions_of_tokens(request);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(sees(i, 20));
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(sees(4 + i, 20), tokens[i] == 1);
    EXPECT_TRUE(sees(4 + i, 4)) << "the image sees itself";
  }
}

// Quadrants of one size: every block attends in one batch without copying a row.
TEST_F(RegionGroups, QuadrantsNeedNoCopies) {
  const Request request = with_boxes({{0, 0, 32, 32}, {32, 0, 32, 32}, {0, 32, 32, 32}, {32, 32, 32, 32}});
  const auto groups = groups_of(request, RegionPass::Positive, 4 * 2, {});
  ASSERT_TRUE(groups);
  for (const AttentionGroups* each : {&groups->all, &groups->last}) {
    ASSERT_EQ(each->batches.size(), 1u);
    EXPECT_EQ(each->batches[0].groups, 4);
    EXPECT_FALSE(each->batches[0].queries.ids.defined());
    EXPECT_FALSE(each->batches[0].keys.ids.defined());
    EXPECT_FALSE(each->results.defined());
  }
  EXPECT_EQ(groups->all.visible_pairs(), 4 * 6 * 6);  // of 24 · 24
  EXPECT_EQ(groups->last.visible_pairs(), 4 * 4 * 6);
  // One box and its background: four groups, each with keys that lie together.
  const auto box = groups_of(with_boxes({{16, 16, 32, 32}}), RegionPass::Positive, 2 * 2, {});
  EXPECT_EQ(box->all.batches.size(), 4u);
  for (const auto& batch : box->all.batches) EXPECT_FALSE(batch.keys.ids.defined());
}

}  // namespace
}  // namespace flux2
