#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// What is unloaded from the device, and when.
enum class Offload {
  Auto,     // only what is necessary to stay within the budget
  None,     // everything stays on the device
  Encoder,  // the text encoder is unloaded after the prompt is encoded
  Stream,   // blocks of the transformer are streamed from the host as they are needed
};

const std::vector<std::string>& offload_names();  // "auto", "none", "encoder", "stream"
Offload offload_named(std::string_view name);
std::string_view name_of(Offload offload);

// Bytes of a network: the part that always stays, and each block in the order they run.
struct NetworkBytes {
  int64_t outside = 0;
  std::vector<int64_t> blocks;

  int64_t total() const;
  // Bytes if only the first `resident` blocks stay and the others share two buffers; all bytes if all blocks stay.
  int64_t with_resident(size_t resident) const;
  int64_t with_streamed(const std::vector<size_t>& streamed) const;  // the same for any blocks, by number
};

// The memory that a run needs besides the weights of transformer and text encoder: activations, the autoencoder, adapters.
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
  bool fits = true;      // false: the budget is too small even so
  bool tiles = false;    // images are decoded in tiles, because otherwise it would not fit
  int64_t budget = 0;    // bytes that `peak` is compared with; 0: there is no limit
  int64_t smallest = 0;  // the smallest budget with which it would fit

  std::string str(const NetworkBytes& transformer) const;  // "the text encoder is unloaded after use; 3 of 25 blocks stay"
};

// Decides where weights go, so that they and `working` bytes (activations, the autoencoder) stay within `budget`. If `can_stream`
// is false, all blocks stay. The last `streamed` blocks of the transformer are always streamed.
Placement choose_placement(const NetworkBytes& encoder, const NetworkBytes& transformer, int64_t working, int64_t budget,
                           Offload offload, bool can_stream = true, size_t streamed = 0);

// Bytes that this process uses now, without mapped files, plus the program's own files.
int64_t program_bytes();

}  // namespace flux2
