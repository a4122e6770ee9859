#include "engine/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <string>

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

int64_t NetworkBytes::with_streamed(const std::vector<size_t>& streamed) const {
  int64_t bytes = total(), largest = 0;
  for (const size_t block : streamed) {
    bytes -= blocks.at(block);
    largest = std::max(largest, blocks[block]);
  }
  return bytes + std::min<int64_t>(2, static_cast<int64_t>(streamed.size())) * largest;
}

std::string Placement::str(const NetworkBytes& transformer) const {
  std::string text = encoder_leaves ? "the text encoder is unloaded after use" : "all networks stay in memory";
  if (transformer_blocks < transformer.blocks.size())
    text += fmt::format("; {} of the transformer's {} blocks stay in memory, the others are streamed", transformer_blocks,
                        transformer.blocks.size());
  return text;
}

Placement choose_placement(const NetworkBytes& encoder, const NetworkBytes& transformer, int64_t working, int64_t budget,
                           Offload offload, bool can_stream, size_t streamed) {
  Placement p{.encoder_blocks = encoder.blocks.size(), .transformer_blocks = transformer.blocks.size()};
  const int64_t together = encoder.total() + transformer.total() + working;
  p.encoder_leaves = offload == Offload::Encoder || offload == Offload::Stream || (offload == Offload::Auto && together > budget);
  if (can_stream && (offload == Offload::Stream || (offload == Offload::Auto && p.encoder_leaves))) {
    const int64_t room = budget - working;
    p.encoder_blocks = resident_blocks(encoder, room);
    p.transformer_blocks = resident_blocks(transformer, room);
    // Asked for by name: stream even what would fit.
    if (offload == Offload::Stream && p.transformer_blocks == transformer.blocks.size()) p.transformer_blocks = 0;
  }
  if (can_stream && streamed > 0) {
    const size_t blocks = transformer.blocks.size();
    p.transformer_blocks = std::min(p.transformer_blocks, blocks - std::min(blocks, streamed));
  }
  const int64_t e = encoder.with_resident(p.encoder_blocks), t = transformer.with_resident(p.transformer_blocks);
  p.peak = (p.encoder_leaves ? std::max(e, t) : e + t) + working;
  p.fits = p.peak <= budget;
  p.budget = budget;
  const bool may_stream = can_stream && (offload == Offload::Auto || offload == Offload::Stream);
  const int64_t least_e = may_stream ? std::min(encoder.total(), encoder.with_resident(0)) : encoder.total();
  const int64_t least_t = may_stream ? std::min(transformer.total(), transformer.with_resident(0)) : transformer.total();
  p.smallest = (offload == Offload::None ? least_e + least_t : std::max(least_e, least_t)) + working;
  return p;
}

WorkingBytes WorkingBytes::largest(const WorkingBytes& a, const WorkingBytes& b) {
  return {std::max(a.whole, b.whole), std::max(a.tiled, b.tiled)};
}

int64_t program_bytes() {
  constexpr int64_t kOwnFiles = int64_t{24} << 20;  // of the program and its libraries that are in memory
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("RssAnon:")) return kOwnFiles + std::stoll(line.substr(8)) * 1024;
  return kOwnFiles;
}

}  // namespace flux2
