#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// What leaves the device when.
enum class Offload {
  Auto,     // as little as the budget allows
  None,     // everything stays
  Encoder,  // the text encoder leaves once a prompt is encoded
  Stream,   // blocks of the transformer come from the host as they are needed
};

const std::vector<std::string>& offload_names();  // "auto", "none", "encoder", "stream"
Offload offload_named(std::string_view name);
std::string_view name_of(Offload offload);

// Bytes of a network: what always stays, and each of its blocks in the order they run.
struct NetworkBytes {
  int64_t outside = 0;
  std::vector<int64_t> blocks;

  int64_t total() const;
  // With only the first `resident` blocks staying and two at a time of the others; all of it when all stay.
  int64_t with_resident(size_t resident) const;
};

struct Placement {
  bool encoder_leaves = false;
  // Blocks that stay; all of them unless the network is streamed.
  size_t encoder_blocks = 0, transformer_blocks = 0;
  int64_t peak = 0;  // bytes of weights and working memory at the worst moment
  bool fits = true;  // false: even so the budget is too small; it is tried all the same

  std::string str(const NetworkBytes& transformer) const;  // "the text encoder leaves after use; 3 of 25 blocks stay"
};

// Where weights go so that they and `working` bytes (activations, the autoencoder) stay within `budget`.
Placement choose_placement(const NetworkBytes& encoder, const NetworkBytes& transformer, int64_t working, int64_t budget,
                           Offload offload);

}  // namespace flux2
