#include "app/latent_files.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "record/field_values.h"
#include "record/request_fields.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace {

constexpr int64_t kLargestSide = 4096 / 16;  // latents

// The metadata keys of musubi-tuner and the fields that they set.
constexpr std::pair<const char*, const char*> kTexts[] = {{"seeds", "seed"},         {"prompt", "prompt"},
                                                          {"height", "height"},      {"width", "width"},
                                                          {"infer_steps", "steps"},  {"embedded_cfg_scale", "guidance"},
                                                          {"guidance_scale", "cfg"}, {"negative_prompt", "negative"}};

std::map<std::string, std::string> texts_of(const GenerationRecord& record, const Picture& picture, bool is_private) {
  RequestSpec about = record.request;
  about.width = picture.columns * 16, about.height = picture.rows * 16;
  std::map<std::string, std::string> texts;
  for (const auto& [text, name] : kTexts) {
    const Field& f = field(name);
    const auto value = get_value(about, f);
    if (value && !(is_private && f.is_private)) texts[text] = print_value(*value).front();
  }
  return texts;
}

GenerationRecord record_of_texts(const std::map<std::string, std::string>& texts) {
  GenerationRecord record;
  record.app.clear();
  for (const auto& [text, name] : kTexts) {
    const auto found = texts.find(text);
    if (found == texts.end() || found->second == "None") continue;
    try {
      set_value(record.request, field(name), parse_value(field(name), {found->second}, text));
    } catch (const Error&) {
      // Another program wrote a value that we do not have. It is left out of the record.
    }
  }
  return record;
}

}  // namespace

bool save_latents(const std::filesystem::path& path, const Picture& picture, const GenerationRecord& record,
                  const MetadataChoice& metadata, bool may_replace) {
  const Shape shape{static_cast<int64_t>(picture.latents.size()) / (picture.rows * picture.columns), picture.rows,
                    picture.columns};
  std::map<std::string, std::string> texts;
  if (metadata.a1111 || metadata.json) texts = texts_of(record, picture, metadata.is_private);
  if (metadata.json) texts["flux2"] = to_json(record, metadata.is_private).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::vector<std::pair<std::string, Tensor>> tensors = {
      {"latent", Tensor::host_copy(picture.latents.data(), DType::F32, shape)}};
  if (!may_replace) return save_new_tensors(path, tensors, texts);
  save_tensors(path, tensors, texts);
  return true;
}

SavedLatents read_latents(const std::filesystem::path& path, const Log& log) {
  const auto source = open_weights(path, log);
  const char* name = source->find("latent") ? "latent" : "latents";
  if (!source->find(name)) fail(ErrorCode::Incompatible, "{} holds no tensor \"latent\" or \"latents\"", path.string());
  SavedLatents saved{source->open(name), {}};
  Tensor& latents = saved.latents;
  const Shape stored = latents.shape();
  if (stored.rank() == 4 && stored[0] == 1) latents = latents.reshaped({stored[1], stored[2], stored[3]});
  if (latents.rank() != 3 || latents.dim(1) < 1 || latents.dim(2) < 1 || latents.dim(1) > kLargestSide ||
      latents.dim(2) > kLargestSide)
    fail(ErrorCode::Incompatible,
         "the latents in {} have shape {}; [128, rows, columns] is needed, with at most {} rows and columns", path.string(),
         stored, kLargestSide);
  const auto& texts = source->metadata();
  const auto own = texts.find("flux2");
  saved.record = own != texts.end() ? record_from_json(parse_json(own->second)) : record_of_texts(texts);
  if (saved.record.app.empty()) saved.record.app = program_version();
  return saved;
}

}  // namespace flux2
