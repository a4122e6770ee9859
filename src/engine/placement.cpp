#include "engine/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr std::array<const char*, 4> kNames = {"auto", "none", "encoder", "stream"};

// How many blocks can stay; all when everything fits.
size_t resident_blocks(const NetworkBytes& network, int64_t room) {
  if (network.total() <= room) return network.blocks.size();
  size_t count = 0;
  while (count < network.blocks.size() && network.with_resident(count + 1) <= room) ++count;
  return std::min(count, network.blocks.empty() ? 0 : network.blocks.size() - 1);
}

}  // namespace

const std::vector<std::string>& offload_names() {
  static const std::vector<std::string> names(kNames.begin(), kNames.end());
  return names;
}

Offload offload_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Offload>(i);
  fail(ErrorCode::InvalidArgument, "\"{}\" is not one of auto, none, encoder, stream", name);
}

std::string_view name_of(Offload offload) { return kNames[static_cast<size_t>(offload)]; }

int64_t NetworkBytes::total() const { return std::accumulate(blocks.begin(), blocks.end(), outside); }

int64_t NetworkBytes::with_resident(size_t resident) const {
  const auto first_streamed = blocks.begin() + static_cast<ptrdiff_t>(std::min(resident, blocks.size()));
  const int64_t largest = first_streamed == blocks.end() ? 0 : *std::max_element(first_streamed, blocks.end());
  return std::accumulate(blocks.begin(), first_streamed, outside) + 2 * largest;
}

std::string Placement::str(const NetworkBytes& transformer) const {
  std::string text = encoder_leaves ? "the text encoder leaves after use" : "all networks stay";
  if (transformer_blocks < transformer.blocks.size())
    text += fmt::format("; {} of {} blocks of the transformer stay, the others are streamed", transformer_blocks,
                        transformer.blocks.size());
  return text;
}

Placement choose_placement(const NetworkBytes& encoder, const NetworkBytes& transformer, int64_t working, int64_t budget,
                           Offload offload) {
  Placement p{.encoder_blocks = encoder.blocks.size(), .transformer_blocks = transformer.blocks.size()};
  const int64_t together = encoder.total() + transformer.total() + working;
  p.encoder_leaves = offload == Offload::Encoder || offload == Offload::Stream || (offload == Offload::Auto && together > budget);
  if (offload == Offload::Stream || (offload == Offload::Auto && p.encoder_leaves)) {
    const int64_t room = budget - working;
    p.encoder_blocks = resident_blocks(encoder, room);
    p.transformer_blocks = resident_blocks(transformer, room);
    // Asked for by name: stream even what would fit.
    if (offload == Offload::Stream && p.transformer_blocks == transformer.blocks.size()) p.transformer_blocks = 0;
  }
  const int64_t e = encoder.with_resident(p.encoder_blocks), t = transformer.with_resident(p.transformer_blocks);
  p.peak = (p.encoder_leaves ? std::max(e, t) : e + t) + working;
  p.fits = p.peak <= budget;
  return p;
}

}  // namespace flux2
