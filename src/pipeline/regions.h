#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/mask.h"
#include "model/flux2_transformer.h"
#include "pipeline/references.h"
#include "pipeline/request.h"

namespace flux2 {

// Prompts for parts of an image. The text of a region and the tokens of its area see each other, and the tokens of one area see
// each other. Tokens in no region ("background") see the request's own prompt and all tokens of the image, which see them. Texts
// do not see each other. References of the request are seen by everything, those of a region by its text and its area.

constexpr size_t kMostRegions = 16;
// Regions may overlap. Tokens of the same set of regions form one group of the attention, and each group takes time.
constexpr size_t kMostRegionSets = 64;

// "PROMPT@x,y,w,h", or "PROMPT" alone for a region whose area is a mask.
struct RegionText {
  std::string prompt;
  std::optional<Box> box = {};

  std::string text() const;  // which parse_region reads back
};
RegionText parse_region(std::string_view text);

// "N:FILE": a reference image of region N, counted from 1.
struct RegionFile {
  size_t region = 0;
  std::string file;
};
RegionFile parse_region_file(std::string_view text);

// The regions of every token of the image, as bits: bit r stands for region r. A token belongs to a region if the middle of its
// 16 × 16 pixels does.
std::vector<uint64_t> regions_of_tokens(const Request& request);

// Whether some token sees the request's own prompt. If regions cover the whole image, none does.
bool uses_own_prompt(const Request& request);

// The prompts whose states are the text of the pass with the prompt, in their order: the request's own one if it is used, then
// those of the regions.
std::vector<std::string> prompts_of(const Request& request);

// For a request that generates part of an image of width × height pixels again, with the regions of the whole image: cuts their
// masks to that part, and leaves out regions that have no token there.
void cut_regions(Request& request, int width, int height, const Box& part);

// Throws InvalidArgument, naming what is wrong, if the transformer cannot use these regions.
void check_regions(const Request& request);

// How many of all pairs of tokens see each other in the pass with the prompt, 0 to 1.
double visible_share(const Request& request, int64_t text_length);

// The two passes of true guidance. The negative prompt belongs to the whole image.
enum class RegionPass { Positive, Negative };

// Which tokens of a pass see which: `text_rows` rows of text, the image, the references. Null if every token sees every other
// one. `rope` is that of the pass.
std::shared_ptr<const TokenGroups> region_groups(Stream& stream, const Request& request, RegionPass pass, int64_t text_rows,
                                                 const ReferenceTokens& references, const Rope& rope);

}  // namespace flux2
