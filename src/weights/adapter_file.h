#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "weights/weight_source.h"

namespace flux2 {

// GLoRA and IA3 are recognised but cannot be loaded.
enum class AdapterKind { Lora, LoHa, LoKr, Oft, Difference, Glora, Ia3 };
const char* name_of(AdapterKind kind);

// The contents of an adapter file for one layer. `parts` by role:
//   Lora        down [r, in], up [out, r]
//   LoHa        w1_a [out, r], w1_b [r, in], w2_a, w2_b
//   LoKr        w1 or w1_a · w1_b, w2 or w2_a · w2_b
//   Oft         blocks [k, n, n], rescale
//   Difference  diff [out, in]
// and for all but the last `magnitude`, which makes it a DoRA.
struct AdapterModule {
  std::string name;  // of the layer, as the file writes it
  AdapterKind kind = AdapterKind::Lora;
  std::map<std::string, const StoredTensor*> parts;
  std::optional<double> alpha;
  double factor = 1.0;  // beside alpha: a `scale` tensor
  bool rank_stabilised = false;

  const StoredTensor* part(const std::string& role) const;
  struct Extents {
    int64_t out = 0, in = 0;
  };
  Extents extents() const;  // of the layer, from the shapes alone; 0 if they do not determine it
  int64_t rank() const;     // 0 where the kind has none
  double scale() const;     // multiplies the product of the matrices; includes alpha / rank
  std::string first_key() const;
};

struct AdapterFile {
  std::shared_ptr<const WeightSource> source;
  std::vector<AdapterModule> modules;          // by name
  std::vector<std::string> text_encoder_keys;  // not used: FLUX.2's text encoders are not adapted
  std::vector<std::string> unknown_keys;
  std::string key_style;         // how the matrices are called: "lora_A/lora_B", "lora_down/lora_up", …
  bool is_adapter = false;       // some key has a suffix that only adapters use
  std::optional<Error> refusal;  // the first thing that stops read_adapter
};

// Sorts the keys of a file by layer, in every dialect, without reading any values (alpha and similar stay unset). Never throws
// for a file that cannot be loaded: its modules are listed too, and `refusal` says why.
AdapterFile list_adapter(std::shared_ptr<const WeightSource> source);

// Reads an adapter that can be applied. Throws Incompatible, naming the algorithm, if it is not supported. Throws BadFile, naming
// the key, if half of a pair is missing or a value is not a number. The adapter_config.json of a PEFT folder is looked up next to
// `path`.
AdapterFile read_adapter(const std::filesystem::path& path, const Log& log = {});
AdapterFile read_adapter(std::shared_ptr<const WeightSource> source, const std::string& config = {}, const Log& log = {});

}  // namespace flux2
