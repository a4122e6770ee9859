#include "server/jobs/training_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "app/training_data.h"
#include "base/atomic_file.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "server/http/errors.h"
#include "server/store/ids.h"
#include "train/data/dataset.h"
#include "train/log/state_folder.h"
#include "train/sample_prompts.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

using Problems = std::vector<HttpError::FieldProblem>;

constexpr size_t kLongestRunName = 100;
constexpr size_t kMostPrompts = 100, kMostAssets = 100'000;

// The server decides where a run reads and writes, and does not lend its token to requests.
constexpr std::string_view kServersOwn[] = {"dataset_config",
                                            "config_file",
                                            "preset",
                                            "output_dir",
                                            "output_name",
                                            "resume",
                                            "resume_force",
                                            "logging_dir",
                                            "jsonl",
                                            "show_timesteps",
                                            "ranks",
                                            "ddp_timeout",
                                            "ddp_backend",
                                            "log_with",
                                            "log_prefix",
                                            "log_tracker_name",
                                            "log_config",
                                            "model_version",
                                            "async_upload",
                                            "save_state_to_huggingface",
                                            "resume_from_huggingface"};

// What changes neither what is learnt nor where it goes.
constexpr std::string_view kChangeable[] = {"max_train_steps",      "max_train_epochs",         "max_time",
                                            "save_every_n_epochs",  "save_every_n_steps",       "save_last_n_epochs",
                                            "save_last_n_steps",    "save_last_n_epochs_state", "save_last_n_steps_state",
                                            "sample_every_n_steps", "sample_every_n_epochs",    "validate_every_n_steps"};

std::string option_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

// The texts that the command line would have.
std::vector<std::string> option_texts(const TrainField& field, const Json& value) {
  const bool is_flag = std::holds_alternative<bool TrainOptions::*>(field.member);
  if (is_flag) {
    check(value.is_boolean(), "must be true or false");
    return {value.get<bool>() ? "true" : "false"};
  }
  check(!value.is_object() && (!value.is_array() || field.is_list()), "must be a number or a string");
  std::vector<std::string> texts;
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    check(one.is_string() || one.is_number(), "must be a number or a string");
    texts.push_back(option_text(one));
    check(texts.back().find('\0') == std::string::npos && texts.back().size() <= 10'000, "is too long");
  }
  return texts;
}

void check_option(const std::string& name, const Json& value, const AllowedFolders& allowed) {
  const TrainField* field = find_train_field(name);
  if (!field || field->name != name) {
    std::vector<std::string> names;
    for (const TrainField& f : train_fields())
      if (!is_servers_own_option(f.name)) names.push_back(f.name);
    const std::string near = nearest_word(name, names);
    fail(ErrorCode::InvalidArgument, "unknown option{}", near.empty() ? "" : "; did you mean " + near + "?");
  }
  check(!is_servers_own_option(name), "the server sets this option itself");
  const std::vector<std::string> texts = option_texts(*field, value);
  check(!texts.empty(), "must not be empty");
  TrainOptions scratch;
  set_train_option(scratch, *field, texts);
  if (name == "network_weights" || name == "base_weights")
    for (const std::string& path : texts) allowed.checked(path, "options." + name);
  // A plain name may also be the name of a registered encoder, which needs no check.
  if (const std::string& path = texts.back(); name == "image_prompt_encoder" && (!is_plain_name(path) || path_exists(path)))
    allowed.checked(path, "options." + name);
}

bool is_run_name(const std::string& name) {
  return is_plain_name(name) && name.size() <= kLongestRunName && !name.starts_with('.') &&
         name.find_first_of("@:\"<>|*?") == name.npos;
}

Json checked_prompts(const Json& value, const AllowedFolders& allowed) {
  check(value.is_array() && value.size() <= kMostPrompts, "must be a list of at most {} prompts", kMostPrompts);
  for (const SamplePrompt& prompt : sample_prompts_from_json(value))
    for (const auto* paths : {&prompt.references, &prompt.image_prompts})
      for (const std::string& path : *paths) allowed.checked(path, "options.sample_prompts");
  return value;
}

void check_dataset_member(const Json& dataset, Problems& problems) {
  if (!dataset.is_object()) {
    problems.push_back({"dataset", "must be {\"config\"}, {\"path\"} or {\"assets\"}"});
    return;
  }
  size_t ways = 0;
  for (const auto& [key, value] : dataset.items()) {
    if (key == "config" || key == "path" || key == "assets") ++ways;
    else if (key != "general") problems.push_back({"dataset." + printable(key), "unknown member"});
    if (key == "path" && !value.is_string()) problems.push_back({"dataset.path", "must be a string"});
    if ((key == "config" || key == "general") && !value.is_object()) problems.push_back({"dataset." + key, "must be an object"});
    if (key == "assets" && (!value.is_array() || value.empty() || value.size() > kMostAssets))
      problems.push_back({"dataset.assets", fmt::format("must be a list of 1 to {} images", kMostAssets)});
  }
  if (ways != 1) problems.push_back({"dataset", "needs one of config, path and assets"});
  if (dataset.contains("config") && dataset.contains("general"))
    problems.push_back({"dataset.general", "must be a member of config"});
}

[[noreturn]] void refuse_with(Problems problems) {
  std::vector<std::string> lines;
  for (const auto& problem : problems)
    lines.push_back(problem.path.empty() ? problem.message : problem.path + ": " + problem.message);
  HttpError error(400, "invalid_request", fmt::format("{}", fmt::join(lines, "; ")), problems.front().path);
  error.fields = std::move(problems);
  throw error;
}

int64_t drawn_seed() {
  std::random_device device;
  return std::uniform_int_distribution<int64_t>(0, 0x7fffffff)(device);
}

void write_json_file(const fs::path& path, const Json& value) {
  AtomicFile file(path);
  const std::string text = value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  file.write(text.data(), text.size());
  file.commit();
}

// What a dataset made here says unless the request says otherwise: buckets by proportions, and no image is enlarged.
Json with_dataset_defaults(const Json& general) {
  Json values = {{"resolution", 1024}, {"caption_extension", ".txt"}, {"enable_bucket", true}, {"bucket_no_upscale", true}};
  if (general.is_object()) values.update(general);
  return values;
}

// A copy that stays when the original is removed. A hard link costs no space.
void link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::remove(to, failure);
  fs::create_hard_link(from, to, failure);
  if (!failure) return;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot copy an image: {}", failure.message());
}

Json dataset_of_assets(const Json& dataset, const fs::path& folder, const AssetStore& assets) {
  const fs::path images = folder / "images";
  fs::create_directories(images);
  std::string lines;
  size_t number = 0;
  const auto copied = [&](const Json& id, const std::string& param, const std::string& stem) {
    const std::string bare = id.is_string() ? id_without_prefix(id.get<std::string>(), "ast_") : "";
    const auto asset = bare.empty() ? std::nullopt : assets.get(bare);
    if (!asset || asset->missing) throw HttpError(400, "invalid_request", param + ": asset not found", param);
    const fs::path from = assets.path_of(*asset), to = images / (stem + from.extension().string());
    link_or_copy(from, to);
    return to.string();
  };
  for (const Json& item : dataset["assets"]) {
    const std::string param = fmt::format("dataset.assets[{}]", number);
    if (!item.is_object() || !item.contains("asset_id"))
      throw HttpError(400, "invalid_request", param + " must be {\"asset_id\", \"caption\", \"references\", \"image_prompts\"}",
                      param);
    for (const auto& [key, value] : item.items())
      if (key != "asset_id" && key != "caption" && key != "references" && key != "image_prompts")
        throw HttpError(400, "invalid_request", param + "." + printable(key) + ": unknown member", param);
    const std::string stem = fmt::format("{:06}", number++);
    const Json caption = item.value("caption", Json(""));
    if (!caption.is_string()) throw HttpError(400, "invalid_request", param + ".caption: must be a string", param + ".caption");
    Json line = {{"image_path", copied(item["asset_id"], param + ".asset_id", stem)}, {"caption", caption}};
    const auto copy_list = [&](const char* member, const char* path, const char* name) {
      const Json list = item.value(member, Json::array());
      if (!list.is_array() || list.size() > 16)
        throw HttpError(400, "invalid_request", fmt::format("{}.{}: must be a list of at most 16 assets", param, member), param);
      for (size_t i = 0; i < list.size(); ++i)
        line[fmt::format("{}_{}", path, i)] =
            copied(list[i], fmt::format("{}.{}[{}]", param, member, i), fmt::format("{}_{}_{}", stem, name, i));
    };
    copy_list("references", "control_path", "reference");
    copy_list("image_prompts", "image_prompt_path", "image_prompt");
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  AtomicFile file(folder / "images.jsonl");
  file.write(lines.data(), lines.size());
  file.commit();
  // In the table of the dataset, which has more keys than [general].
  Json table = with_dataset_defaults(dataset.value("general", Json::object()));
  for (const auto& [key, value] : table.items())
    if (key.ends_with("_directory") || key.ends_with("_file"))
      throw HttpError(400, "invalid_request", "dataset.general." + printable(key) + ": the images are assets", "dataset.general");
  table["image_jsonl_file"] = (folder / "images.jsonl").string();
  table["cache_directory"] = (folder / "cache").string();
  return {{"datasets", Json::array({table})}};
}

}  // namespace

bool is_servers_own_option(const std::string& name) {
  return name.starts_with("huggingface_") ||
         std::find(std::begin(kServersOwn), std::end(kServersOwn), name) != std::end(kServersOwn);
}

TrainingRequest check_training_request(const Json& body, const AllowedFolders& allowed) {
  if (!body.is_object()) throw HttpError(400, "invalid_request", "the request must be a JSON object");
  TrainingRequest request;
  Problems problems;
  Json options = Json::object(), model = nullptr, preset = nullptr;
  for (const auto& [key, value] : body.items()) {
    if (key == "name" && value.is_string() && is_run_name(value.get<std::string>())) request.name = value.get<std::string>();
    else if (key == "name")
      problems.push_back(
          {key, fmt::format("must be a file name of at most {} characters without @ : \" < > | * ?", kLongestRunName)});
    else if (key == "project_id" && value.is_null()) continue;
    else if (key == "project_id") problems.push_back({key, "projects are not supported yet"});
    else if (key == "preset" && (value.is_null() || value.is_string())) preset = value;
    else if (key == "model" && (value.is_null() || (value.is_string() && is_plain_name(value.get<std::string>())))) model = value;
    else if (key == "dataset") request.dataset = value;
    else if (key == "options" && (value.is_null() || value.is_object())) options = value.is_null() ? Json::object() : value;
    else if (key == "dry" && value.is_boolean()) request.dry = value.get<bool>();
    else if (key == "preset" || key == "model") problems.push_back({key, "must be a name"});
    else if (key == "options") problems.push_back({key, "must be an object"});
    else if (key == "dry") problems.push_back({key, "must be true or false"});
    else problems.push_back({printable(key), "unknown member"});
  }
  if (!body.contains("name")) problems.push_back({"name", "is missing"});
  const auto& presets = train_preset_names();
  if (preset.is_string() && std::find(presets.begin(), presets.end(), preset.get<std::string>()) == presets.end())
    problems.push_back({"preset", fmt::format("must be one of {}", fmt::join(presets, ", "))});
  check_dataset_member(request.dataset, problems);
  Json given = Json::object();
  for (const auto& [name, value] : options.items()) {
    if (value.is_null()) continue;
    try {
      if (name == "sample_prompts") {
        request.sample_prompts = checked_prompts(value, allowed);
        continue;
      }
      check_option(name, value, allowed);
      given[name] = value;
    } catch (const Error& e) {
      std::string message = e.what();
      if (message.starts_with(name + ": ")) message.erase(0, name.size() + 2);
      problems.push_back({"options." + printable(name), message});
    }
  }
  if (!problems.empty()) refuse_with(std::move(problems));
  // A run that begins again before its first state was saved must be the same run.
  if (!given.contains("seed")) given["seed"] = drawn_seed();
  // So that a killed server loses little.
  if (!given.contains("save_state")) given["save_state"] = true;
  request.stored = {{"model", model}, {"preset", preset}, {"options", given}};
  return request;
}

Json changed_options(const Json& options, const Json& changes) {
  Json changed = options;
  Problems problems;
  for (const auto& [name, value] : changes.items()) {
    if (std::find(std::begin(kChangeable), std::end(kChangeable), name) == std::end(kChangeable)) {
      problems.push_back(
          {"options." + printable(name), fmt::format("cannot be changed; these can: {}", fmt::join(kChangeable, ", "))});
      continue;
    }
    try {
      if (value.is_null()) changed.erase(name);
      else check_option(name, value, {}), changed[name] = value;
    } catch (const Error& e) {
      problems.push_back({"options." + name, e.what()});
    }
  }
  if (changes.empty()) problems.push_back({"options", "contains no option to change"});
  if (!problems.empty()) refuse_with(std::move(problems));
  return changed;
}

Json dataset_at(const fs::path& path, const Json& general) {
  std::error_code failure;
  if (fs::is_directory(path, failure))
    return {{"general", with_dataset_defaults(general)}, {"datasets", {{{"image_directory", path.string()}}}}};
  if (!fs::is_regular_file(path, failure)) fail(ErrorCode::NotFound, "dataset {} not found", path.string());
  check(!general.is_object() || general.empty(), "write dataset.general into the dataset file");
  return read_json_or_toml(path);
}

void check_dataset_paths(const Json& content, const fs::path& file, const AllowedFolders& allowed) {
  for (const DatasetConfig& config : read_dataset_config(content, file)) {
    for (const fs::path& path : {config.image_directory, config.image_jsonl_file, config.cache_directory,
                                 config.control_directory, config.mask_directory, config.image_prompt_directory})
      if (!path.empty()) allowed.checked(path, "dataset");
    for (const DatasetItem& item : list_dataset(config).items) {
      allowed.checked(item.image, "dataset");
      for (const fs::path& reference : item.references) allowed.checked(reference, "dataset");
      for (const fs::path& image : item.image_prompts) allowed.checked(image, "dataset");
      if (!item.mask.empty()) allowed.checked(item.mask, "dataset");
    }
  }
}

void write_training_dataset(const TrainingRequest& request, const fs::path& folder, const AssetStore& assets,
                            const AllowedFolders& allowed, const AppContext& context) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create the folder of the run: {}", failure.message());
  const Json& dataset = request.dataset;
  Json content;
  fs::path file = folder / "dataset.json";
  if (dataset.contains("assets")) {
    content = dataset_of_assets(dataset, folder, assets);
  } else if (dataset.contains("path")) {
    const fs::path path = allowed.checked(dataset["path"].get<std::string>(), "dataset.path");
    content = dataset_at(path, dataset.value("general", Json::object()));
    if (!fs::is_directory(path, failure)) file = path;  // its paths may be relative to it
  } else {
    content = dataset["config"];
  }
  check_dataset_paths(content, file, allowed);
  list_datasets(read_dataset_config(content, file), {}, context.log);  // says what would stop training
  // Paths that are relative to another file would not be found from here.
  if (file != folder / "dataset.json") write_json_file(folder / "dataset_file.json", {{"path", file.string()}});
  else write_json_file(file, content);
  if (!request.sample_prompts.is_null()) write_json_file(folder / "sample_prompts.json", request.sample_prompts);
}

GivenTrainOptions given_train_options(const Json& stored, const std::string& name, const fs::path& folder) {
  GivenTrainOptions given;
  for (const auto& [option, value] : stored["options"].items()) {
    given[option] = option_texts(*find_train_field(option), value);
  }
  if (stored["preset"].is_string()) given["preset"] = {stored["preset"].get<std::string>()};
  given["output_dir"] = {folder.string()};
  given["output_name"] = {name};
  given["dataset_config"] = {(folder / "dataset.json").string()};
  if (path_exists(folder / "dataset_file.json"))
    given["dataset_config"] = {read_json_or_toml(folder / "dataset_file.json")["path"].get<std::string>()};
  if (path_exists(folder / "sample_prompts.json")) given["sample_prompts"] = {(folder / "sample_prompts.json").string()};
  if (newest_state({folder, name})) given["resume"] = {"newest"};
  return given;
}

}  // namespace flux2
