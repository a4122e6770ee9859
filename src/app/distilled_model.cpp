#include "app/distilled_model.h"

#include <fmt/format.h>

#include "app/model_knowledge.h"
#include "base/atomic_file.h"
#include "base/json.h"
#include "base/path_exists.h"
#include "train/log/output_names.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

void copy_all(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::create_directories(to.parent_path(), failed);
  if (!failed) fs::copy(from, to, fs::copy_options::overwrite_existing | fs::copy_options::recursive, failed);
  if (failed) fail(ErrorCode::CannotWrite, "cannot copy {} to {}: {}", from.string(), to.string(), failed.message());
}

// A part that is a file keeps its name; its folder's configuration comes with it.
void copy_part(const fs::path& from, const fs::path& folder) {
  if (is_folder(from)) return copy_all(from, folder);
  copy_all(from, folder / from.filename());
  if (const fs::path config = from.parent_path() / "config.json"; is_file(config)) copy_all(config, folder / "config.json");
}

}  // namespace

fs::path write_distilled_model(const ModelFiles& teacher, const fs::path& transformer, const TrainOptions& options) {
  const fs::path folder = fs::path(options.output_dir) / options.output_name;
  const fs::path average = transformer.parent_path() / (transformer.stem().string() + "-ema.safetensors");
  copy_all(is_file(average) ? average : transformer, folder / fmt::format("flux-2-{}.safetensors", options.output_name));
  copy_all(teacher.vae, is_folder(teacher.vae) ? folder / "vae" : folder / "ae.safetensors");
  copy_part(teacher.text_encoder, folder / "text_encoder");
  copy_part(teacher.tokenizer, folder / "tokenizer");
  const ModelDefaults& d = teacher.defaults;
  Json own = {{"text_length", d.text_length},
              {"text_layers", d.text_layers},
              {"steps", *options.distill_steps},
              {"guidance", 1.0},
              {"width", d.width},
              {"height", d.height}};
  if (!d.system_message.empty()) own["system_message"] = d.system_message;
  for (const auto& [width, height] : knowledge_of(teacher).sizes) own["sizes"].push_back({width, height});
  const std::string text = Json{{"name", options.output_name}, {"is_distilled", true}, {"flux2", own}}.dump(1) + "\n";
  AtomicFile file(folder / "model_index.json");
  file.write(text.data(), text.size());
  file.commit();
  return folder;
}

}  // namespace flux2
