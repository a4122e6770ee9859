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

// What runs need beside the weights of transformer and text encoder: activations, the autoencoder, adapters.
struct WorkingBytes {
  int64_t whole = 0;  // when images are decoded at once
  int64_t tiled = 0;  // when they are decoded in tiles of the usual size; as much as `whole` when that is not known

  static WorkingBytes largest(const WorkingBytes& a, const WorkingBytes& b);
};

struct Placement {
  bool encoder_leaves = false;
  // Blocks that stay; all of them unless the network is streamed.
  size_t encoder_blocks = 0, transformer_blocks = 0;
  int64_t peak = 0;      // bytes of weights and working memory at the worst moment
  bool fits = true;      // false: even so the budget is too small
  bool tiles = false;    // images are decoded in tiles, or else it would not fit
  int64_t budget = 0;    // bytes that `peak` is compared with; 0: there is no limit
  int64_t smallest = 0;  // the smallest budget with which it would fit

  std::string str(const NetworkBytes& transformer) const;  // "the text encoder leaves after use; 3 of 25 blocks stay"
};

// Where weights go so that they and `working` bytes (activations, the autoencoder) stay within `budget`.
// With `can_stream` false blocks always stay.
Placement choose_placement(const NetworkBytes& encoder, const NetworkBytes& transformer, int64_t working, int64_t budget,
                           Offload offload, bool can_stream = true);

// Bytes that this process takes now beside the files it maps, and what the program's own files take.
int64_t program_bytes();

}  // namespace flux2
