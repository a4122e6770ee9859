#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "app/dataset_report.h"
#include "app/training_data.h"
#include "base/atomic_file.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "server/api/native.h"
#include "server/api/native_training.h"
#include "server/http/errors.h"
#include "train/data/dataset.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostListed = 10'000;
constexpr size_t kLongestCaption = 100'000;

// The images of a dataset with their captions; for a folder also the folders in it.
HttpResponse list_dataset_files(const ServerRequest& request, TrainingRuns& runs) {
  const std::string asked = request.argument("path").value_or("");
  Json folders = Json::array(), items = Json::array();
  if (asked.empty()) {
    for (const fs::path& folder : runs.allowed().folders()) folders.push_back(folder.string());
    return HttpResponse::json({{"path", nullptr}, {"folders", folders}, {"items", items}, {"warnings", Json::array()}});
  }
  const fs::path path = runs.allowed().checked(asked, "path");
  const Json content = dataset_at(path, nullptr);
  check_dataset_paths(content, path, runs.allowed());
  std::error_code failure;
  if (fs::is_directory(path, failure)) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path, failure))
      if (entry.is_directory(failure)) names.push_back(entry.path().string());
    std::sort(names.begin(), names.end());
    folders = names;
  }
  Json warnings = Json::array();
  for (const DatasetConfig& config : read_dataset_config(content, path)) {
    const Dataset dataset = flux2::list_dataset(config);
    for (const Finding& finding : dataset.findings) warnings.push_back(finding.text);
    for (const DatasetItem& item : dataset.items) {
      if (items.size() == kMostListed) break;
      items.push_back({{"image", item.image.string()},
                       {"caption", item.captions.empty() ? Json(nullptr) : Json(item.captions.front())},
                       {"references", item.references.size()}});
    }
  }
  return HttpResponse::json({{"path", path.string()}, {"folders", folders}, {"items", items}, {"warnings", warnings}});
}

HttpResponse check_a_dataset(const ServerRequest& request, ApiContext& api, TrainingRuns& runs) {
  const Json body = json_body(request, api.app);
  const bool by_path = body.contains("path") && body["path"].is_string();
  const bool by_config = body.contains("config") && body["config"].is_object();
  if (body.size() != 1 || by_path == by_config)
    throw HttpError(400, "invalid_request", "the body must be {\"path\": \"…\"} or {\"config\": {…}}", "path");
  const fs::path path = by_path ? runs.allowed().checked(body["path"].get<std::string>(), "path") : fs::path("dataset.json");
  const Json content = by_path ? dataset_at(path, nullptr) : body["config"];
  check_dataset_paths(content, path, runs.allowed());
  return HttpResponse::json(dataset_report(survey_datasets(content, path, 1, api.app.limits.image, {})));
}

HttpResponse write_caption(const ServerRequest& request, ApiContext& api, TrainingRuns& runs) {
  const Json body = json_body(request, api.app);
  if (body.size() != 2 || !body.contains("path") || !body["path"].is_string() || !body.contains("caption") ||
      !body["caption"].is_string())
    throw HttpError(400, "invalid_request", "the body must be {\"path\": \"…\", \"caption\": \"…\"}", "path");
  const std::string& caption = body["caption"].get_ref<const std::string&>();
  if (caption.size() > kLongestCaption) throw HttpError(400, "invalid_request", "the caption is too long", "caption");
  const fs::path image = runs.allowed().checked(body["path"].get<std::string>(), "path");
  std::error_code failure;
  std::string ending = image.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ending.empty() || std::string(".png.jpg.jpeg.webp.bmp.").find(ending + ".") == std::string::npos ||
      !fs::is_regular_file(image, failure))
    throw HttpError(404, "not_found", "path: image not found", "path");
  fs::path file = image;
  file.replace_extension(".txt");
  runs.allowed().checked(file, "path");  // it may be a link
  AtomicFile out(file);
  out.write(caption.data(), caption.size());
  out.commit();
  return HttpResponse::json({{"path", image.string()}, {"caption_file", file.string()}, {"caption", caption}});
}

}  // namespace

void add_dataset_routes(Router& router, ApiContext& api, TrainingRuns& runs) {
  router.add({.method = "GET",
              .pattern = "/api/v1/training/datasets",
              .handler = answering([&](const ServerRequest& r) { return list_dataset_files(r, runs); }),
              .scope = Scope::Manage,
              .summary = "the images and captions of a dataset file or a folder; without path the folders that may be used",
              .arguments = {"path"}});
  router.add({.method = "POST",
              .pattern = "/api/v1/training/datasets/check",
              .handler = answering([&](const ServerRequest& r) { return check_a_dataset(r, api, runs); }),
              .scope = Scope::Manage,
              .summary = "what is wrong with a dataset",
              .body = R"({"type":"object","properties":{"path":{"type":"string"},"config":{"type":"object"}}})"});
  router.add({.method = "PUT",
              .pattern = "/api/v1/training/datasets/caption",
              .handler = answering([&](const ServerRequest& r) { return write_caption(r, api, runs); }),
              .scope = Scope::Manage,
              .summary = "write the caption of an image",
              .body = R"({"type":"object","required":["path","caption"],"properties":{"path":{"type":"string"},)"
                      R"("caption":{"type":"string"}},"additionalProperties":false})"});
}

}  // namespace flux2
