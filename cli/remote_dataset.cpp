#include "cli/remote_dataset.h"

#include <fmt/format.h>

#include <map>

#include "app/training_data.h"
#include "train/data/dataset.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

Json pixels(PixelSize size) { return Json::array({size.width, size.height}); }

// Keys that say where images and captions are. They are sent themselves.
bool says_where(const std::string& key) {
  return key.ends_with("_directory") || key.ends_with("_file") || key == "caption_extension" || key == "caption_default" ||
         key == "recursive";
}

Json content_of(const fs::path& source) {
  std::error_code failure;
  if (!fs::is_directory(source, failure)) return read_json_or_toml(source);
  return {{"general", {{"caption_extension", ".txt"}}}, {"datasets", {{{"image_directory", source.string()}}}}};
}

Json settings_of(const Json& content, const DatasetConfig& config) {
  Json settings = Json::object();
  for (const Json& table : {content.value("general", Json::object()), content["datasets"][0]})
    for (const auto& [key, value] : table.items())
      if (!says_where(key)) settings[key] = value;
  // The server has other defaults for these.
  settings["resolution"] = pixels(config.resolution);
  settings["enable_bucket"] = config.enable_bucket;
  settings["bucket_no_upscale"] = config.bucket_no_upscale;
  return settings;
}

Dataset listed(const Json& content, const fs::path& source, const Log& log) {
  const std::vector<DatasetConfig> configs = read_dataset_config(content, source, log);
  const Hint copy("copy the dataset to the server and name it with {0}", {set_option("remote_dataset", "PATH")});
  if (configs.size() != 1)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{} has {} datasets, but only one can be sent to a server", source.string(), configs.size()), copy);
  if (!configs[0].mask_directory.empty())
    throw Error(ErrorCode::InvalidArgument, source.string() + ": masks cannot be sent to a server", copy);
  // The images lose their folders.
  if (configs[0].image_prompt_group == ImageGroup::Folder)
    throw Error(ErrorCode::InvalidArgument, source.string() + ": image_prompt_group = \"folder\" cannot be sent to a server",
                copy);
  // The server applies the settings of captions.
  DatasetConfig plain = configs[0];
  plain.caption_prefix = plain.caption_suffix = plain.trigger_word = "";
  plain.shuffle_tags = false;
  Dataset dataset = list_dataset(plain);
  report_findings(dataset.findings, log);
  check(!dataset.items.empty(), "{} has no image with a caption", source.string());
  dataset.config = configs[0];
  return dataset;
}

}  // namespace

Json uploaded_dataset(const fs::path& source, const RemoteServer& server, Invocation& run) {
  const Json content = content_of(source);
  const Dataset dataset = listed(content, source, run.console.log());
  std::map<fs::path, std::string> sent;  // ids by path: a reference may belong to many images
  const auto send = [&](const fs::path& image) {
    std::string& id = sent[image];
    if (id.empty()) id = server.upload(image, read_text_file(image, {.bytes = run.limits.image.file_bytes}));
    return id;
  };
  Json assets = Json::array();
  for (const DatasetItem& item : dataset.items) {
    if (run.console.progress() == ProgressMode::Bar)
      run.console.status(fmt::format("sending image {}/{}", assets.size() + 1, dataset.items.size()));
    Json asset = {{"asset_id", send(item.image)}, {"caption", item.captions.front()}};
    for (const fs::path& reference : item.references) asset["references"].push_back(send(reference));
    for (const fs::path& image : item.image_prompts) asset["image_prompts"].push_back(send(image));
    assets.push_back(std::move(asset));
  }
  run.console.clear_status();
  run.console.note(fmt::format("sent {} images to the server", sent.size()));
  Json answer = {{"assets", assets}};
  std::error_code failure;
  if (!fs::is_directory(source, failure)) answer["general"] = settings_of(content, dataset.config);
  return answer;
}

}  // namespace flux2
