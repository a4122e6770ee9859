#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/training.h"
#include "server/jobs/allowed_folders.h"
#include "server/store/asset_store.h"
#include "server/store/run_store.h"

namespace flux2 {

// The body of POST /api/v1/training:
//   name, project_id (null), preset, model, dry
//   dataset   {"config": the content of a dataset file} or {"path": a dataset file or a folder of images} or
//             {"assets": [{"asset_id", "caption", "references": [ids]}]}; with path and assets "general" may set values for all
//   options   training options by name; sample_prompts is a list of prompts instead of a file
struct TrainingRequest {
  std::string name;
  Json stored = Json::object();  // {"model", "preset", "options"}: what the run keeps
  Json dataset;                  // as it came
  Json sample_prompts;           // a list; null: none
  bool dry = false;
};

// Checks a body without touching the dataset. Draws the seed. Throws HttpError 400 that lists all problems.
TrainingRequest check_training_request(const Json& body, const AllowedFolders& allowed);

// Options that name files, processes and uploads: requests cannot set them, because the server decides.
bool is_servers_own_option(const std::string& name);

// Which options may change while a run exists. Throws HttpError 400.
Json changed_options(const Json& options, const Json& changes);

// Checks the dataset and writes dataset.json and what belongs to it into the run's folder. Throws HttpError, NotFound, BadFile.
void write_training_dataset(const TrainingRequest& request, const std::filesystem::path& folder, const AssetStore& assets,
                            const AllowedFolders& allowed, const AppContext& context);

// Every path in a dataset file, also of the images that it lists, must be in an allowed folder.
void check_dataset_paths(const Json& content, const std::filesystem::path& file, const AllowedFolders& allowed);

// The content of a dataset file for a folder of images, or of the file itself.
Json dataset_at(const std::filesystem::path& path, const Json& general);

// The options of a run as `flux2 train` would get them. The run writes into `folder`.
GivenTrainOptions given_train_options(const Json& stored, const std::string& name, const std::filesystem::path& folder);

}  // namespace flux2
