#include "server/jobs/model_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/convert_part.h"
#include "app/install_model.h"
#include "app/registry_access.h"
#include "base/text.h"
#include "hub/registry/check_record.h"
#include "server/http/errors.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

void refuse_other_members(const Json& request, std::initializer_list<const char*> known) {
  for (const auto& [name, value] : request.items())
    if (std::none_of(known.begin(), known.end(), [&](const char* k) { return name == k; }))
      throw HttpError(400, "invalid_request", fmt::format("unknown member {}", printable(name)), name);
}

bool flag_of(const Json& request, const char* name) {
  const auto found = request.find(name);
  if (found == request.end() || found->is_null()) return false;
  if (!found->is_boolean()) throw HttpError(400, "invalid_type", fmt::format("{} must be true or false", name), name);
  return found->get<bool>();
}

// One of the words, or `usual` if the member is absent.
std::string word_of(const Json& request, const char* name, const std::vector<std::string>& words, const std::string& usual) {
  const auto found = request.find(name);
  if (found == request.end() || found->is_null()) return usual;
  if (!found->is_string()) throw HttpError(400, "invalid_type", fmt::format("{} must be a string", name), name);
  const auto word = found->get<std::string>();
  if (std::find(words.begin(), words.end(), word) == words.end())
    throw HttpError(400, "unsupported_value", fmt::format("{} must be one of {}", name, fmt::join(words, ", ")), name);
  return word;
}

ModelRecord registered(const std::string& key, const AppContext& context) {
  if (const auto registry = look_into_registry(context))
    if (auto record = registry->find(key)) return *record;
  throw HttpError(404, "model_not_found", "model not found");
}

CopyProgress progress_of(RunningTask& task, const char* phase, const std::string& what, double from, double share) {
  return [&task, phase, what, from, share](uint64_t done, uint64_t total, const std::string& file) {
    const double within = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
    task.tell(phase, from + share * within, what + ": " + file);
    return !task.should_stop();
  };
}

}  // namespace

JobQueue::Submission verify_submission(const Json& request, const AppContext& context) {
  refuse_other_members(request, {"keys", "values", "quick"});
  Json keys = Json::array();
  if (request.contains("keys") && !request["keys"].is_null()) {
    if (!request["keys"].is_array()) throw HttpError(400, "invalid_type", "keys must be a list", "keys");
    for (const Json& key : request["keys"]) {
      if (!key.is_string()) throw HttpError(400, "invalid_type", "keys must be a list of strings", "keys");
      keys.push_back(registered(key.get<std::string>(), context).key);
    }
  }
  JobQueue::Submission submission;
  submission.kind = "verify";
  submission.lane = "cpu";
  submission.request = {{"keys", keys}, {"values", flag_of(request, "values")}, {"quick", flag_of(request, "quick")}};
  return submission;
}

void run_verify(RunningTask& task) {
  const Json& request = task.job().request;
  Registry registry = open_registry(task.context());
  std::vector<ModelRecord> records;
  for (const Json& key : request["keys"])
    if (auto record = registry.find(key.get<std::string>())) records.push_back(*record);
  if (request["keys"].empty()) records = registry.all();
  Json items = Json::array();
  for (size_t i = 0; i < records.size(); ++i) {
    const double share = 1.0 / static_cast<double>(records.size());
    CheckOptions options{.values = request.value("values", false), .quick = request.value("quick", false)};
    options.progress = progress_of(task, "verify", records[i].name, share * static_cast<double>(i), share);
    const ModelRecord now = check_record(registry, records[i], options, task.context().log);
    items.push_back(
        {{"key", now.key}, {"name", now.name}, {"state", name_of(now.state)}, {"sha256", now.sha256}, {"note", now.note}});
    task.set_result({{"items", items}});
  }
  task.set_result({{"items", items}});
}

JobQueue::Submission convert_submission(const std::string& key, const Json& request, const AppContext& context) {
  refuse_other_members(request, {"quant", "to", "name", "part"});
  const ModelRecord record = registered(key, context);
  const std::string quant = word_of(request, "quant", quantisation_names(), "keep");
  const std::string to = word_of(request, "to", file_layout_names(), "bfl");
  const std::string part = word_of(request, "part", {"transformer", "text-encoder", "vae"}, "");
  std::string name;
  if (request.contains("name") && request["name"].is_string()) name = request["name"].get<std::string>();
  if (name.empty()) name = name_from(record.name + "-" + quant);
  check_model_name(name);
  if (const auto registry = look_into_registry(context); registry && registry->find(name))
    throw HttpError(409, "name_taken", fmt::format("another model has the name {}", printable(name)), "name");
  JobQueue::Submission submission;
  submission.kind = "convert";
  submission.lane = "cpu";
  submission.request = {{"key", record.key}, {"quant", quant}, {"to", to}, {"part", part}, {"name", name}};
  return submission;
}

void run_convert_task(RunningTask& task) {
  const Json& request = task.job().request;
  const AppContext& context = task.context();
  const std::string name = request.value("name", "");
  const ModelRecord record = registered(request.value("key", ""), context);
  const Recognition input = recognise(record.path, context.log);
  const ConvertiblePart& part = convertible_part(input, request.value("part", ""));
  const Component& component = required_part(input, part.kind);
  const NamedWeights weights(open_weights(component.path, context.log), part.part);
  ConvertOptions options;
  options.choice.layout = file_layout_named(request.value("to", "bfl"));
  options.choice.type = quantisation_named(request.value("quant", "keep"));
  const bool gguf = options.choice.layout == FileLayout::Gguf;
  const fs::path folder = data_folder(context.environment) / "models" / role_folder(record.type);
  options.out = folder / (name + (gguf ? ".gguf" : ".safetensors"));
  if (fs::exists(options.out)) fail(ErrorCode::CannotWrite, "the file {} already exists", options.out.filename().string());
  fs::create_directories(folder);
  options.choice.training = component.training();
  options.progress = progress_of(task, "convert", record.name, 0, 1);
  if (part.part == ModelPart::TextEncoder && gguf) add_tokenizer(component, weights, options, context.log);
  const ConvertReport report = convert_model(weights, options, context.log);
  Registry registry = open_registry(context);
  const auto stored = register_parts(registry, identify(options.out, context.log),
                                     {.name = name, .in_place = false, .source = {"path", record.path.string(), ""}});
  task.set_result({{"model_key", stored.empty() ? Json(nullptr) : Json(stored.front().key)},
                   {"bytes", report.bytes},
                   {"tensors", report.tensors},
                   {"changed", report.changed.size()},
                   {"error", report.total_error}});
}

}  // namespace flux2
