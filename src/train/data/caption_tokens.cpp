#include "train/data/caption_tokens.h"

#include "train/data/caption_cache.h"

namespace flux2 {

CaptionTable::CaptionTable(const std::vector<Dataset>& datasets, const Tokenise& tokenise) : empty_(tokenise("")) {
  for (size_t d = 0; d < datasets.size(); ++d)
    for (const DatasetItem& item : datasets[d].items) {
      Entry entry;
      entry.hash = captions_hash(item.captions);
      for (const std::string& text : item.captions) entry.variants.push_back(tokenise(text));
      entries_.emplace(std::pair(d, item.stem), std::move(entry));
    }
}

const CaptionTable::Entry* CaptionTable::find(size_t dataset, const std::string& stem) const {
  const auto found = entries_.find({dataset, stem});
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace flux2
