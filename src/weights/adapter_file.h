#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "weights/weight_source.h"

namespace flux2 {

enum class AdapterKind { Lora, LoHa, LoKr, Oft, Difference };
const char* name_of(AdapterKind kind);

// What an adapter file says about one layer. `parts` by role:
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
  int64_t rank() const;  // 0 where the kind has none
  double scale() const;  // what multiplies the product of the matrices, alpha over rank taken in
  std::string first_key() const;
};

struct AdapterFile {
  std::shared_ptr<const WeightSource> source;
  std::vector<AdapterModule> modules;          // by name
  std::vector<std::string> text_encoder_keys;  // set aside: FLUX.2's text encoders are not adapted
  std::vector<std::string> unknown_keys;

  bool has_dora() const;
};

// Reads the keys of every dialect. Throws Incompatible, naming it, for an algorithm we do not have and BadFile, naming the
// key, where half of a pair is missing or a number is not one. `path` serves for a PEFT folder's adapter_config.json.
AdapterFile read_adapter(const std::filesystem::path& path, const Log& log = {});
AdapterFile read_adapter(std::shared_ptr<const WeightSource> source, const std::string& config = {}, const Log& log = {});

}  // namespace flux2
