#pragma once

#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/picture_maker.h"

namespace flux2 {

// Keeps the models that were used last in memory: requests for the same files on the same device find them there. A model that
// does not fit beside the others takes the place of the one that was used longest ago. One thread uses a keeper at a time.
class ModelKeeper {
 public:
  explicit ModelKeeper(const AppContext& context, size_t most = 1) : context_(context), most_(most) {}

  // Requests of equal keys share a loaded model, whatever adapters they use. Where only the autoencoder or the text encoder
  // differs, the transformer stays in memory.
  static std::string key_of(const RequestSpec& spec, const ModelFiles& model);

  // A maker for that model, loaded. `requests` as in PictureMaker::load.
  PictureMaker& maker_for(const RequestSpec& spec, const ModelFiles& model, std::span<const ResolvedRequest> requests,
                          const Progress& progress = {});
  bool has(const RequestSpec& spec, const ModelFiles& model) const;  // whether its transformer is in memory
  PictureMaker* maker() const;                                       // the one that was used last; null: none
  std::vector<const PictureMaker*> makers() const;                   // all of them, the one that was used last at the end
  int64_t evicted() const { return evicted_; }                       // models that had to make room so far
  // Unloads models until `bytes` fit beside those that stay, for other work on the device of `spec`. Returns whether it did.
  bool make_room(const RequestSpec& spec, int64_t bytes);
  void drop();                                               // frees all
  void drop_file(const std::filesystem::path& transformer);  // frees those that use this file

 private:
  struct Kept {
    std::string key, engine_key;
    std::unique_ptr<PictureMaker> maker;
  };
  using Models = std::list<Kept>;

  bool has_room_for(const RequestSpec& spec, const ModelFiles& model, std::span<const ResolvedRequest> requests) const;
  int64_t held_bytes() const;
  bool evict_oldest(const PictureMaker* except = nullptr);  // false: there is none
  PictureMaker& load(const RequestSpec& spec, const ModelFiles& model, std::span<const ResolvedRequest> requests,
                     const Progress& progress);

  const AppContext& context_;
  size_t most_;
  int64_t evicted_ = 0;
  Models models_;  // the one that was used last is at the end
};

}  // namespace flux2
