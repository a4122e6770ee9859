#include "app/learn_tokenizer.h"

#include "app/training_data.h"
#include "base/atomic_file.h"
#include "hub/synth_files.h"
#include "text/bpe_trainer.h"
#include "train/data/dataset.h"
#include "train/data/scene_set.h"

namespace flux2 {

namespace {

std::vector<std::string> captions_of(const LearnTokenizer& what, const Log& log) {
  const Json content = read_json_or_toml(what.dataset);
  const auto configs = in_context(what.dataset.string(), [&] { return read_dataset_config(content, what.dataset, log); });
  if (are_scenes(configs)) return scene_captions(configs, what.captions);
  std::vector<std::string> captions;
  for (const Dataset& dataset : list_datasets(configs, {.caption_variants = 1}, log))
    for (const DatasetItem& item : dataset.items) captions.insert(captions.end(), item.captions.begin(), item.captions.end());
  return captions;
}

}  // namespace

LearntTokenizer learn_tokenizer(const LearnTokenizer& what, const AppContext& context) {
  check(!what.folder.empty(), "a folder for the tokenizer is needed");
  const std::vector<std::string> captions = captions_of(what, context.log);
  const LearntBpe learnt = learn_bpe(captions, what.entries - kTemplateTokenCount);
  std::error_code failed;
  std::filesystem::create_directories(what.folder, failed);
  if (failed) fail(ErrorCode::CannotWrite, "cannot create {}: {}", what.folder.string(), failed.message());
  LearntTokenizer result;
  result.captions = static_cast<int64_t>(captions.size());
  result.entries = write_learnt_tokenizer(what.folder, learnt);
  std::string list;
  for (const std::string& word : words_in(captions)) {
    list += word + "\n";
    ++result.words;
  }
  AtomicFile file(what.folder / "words.txt");
  file.write(list.data(), list.size());
  file.commit();
  return result;
}

}  // namespace flux2
