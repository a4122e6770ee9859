#include "server/jobs/model_installs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "hub/registry/starter.h"
#include "server/http/errors.h"
#include "server/jobs/tried_adapters.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr int kListed = 1000;
constexpr const char* kProgress = "progress";  // in Job::resolved
constexpr auto kTellEvery = std::chrono::seconds(1);

std::string text_member(const Json& request, const char* name) {
  const auto found = request.find(name);
  if (found == request.end() || found->is_null()) return {};
  if (!found->is_string()) throw HttpError(400, "invalid_type", fmt::format("{} must be a string", name), name);
  return found->get<std::string>();
}

bool flag_member(const Json& request, const char* name) {
  const auto found = request.find(name);
  if (found == request.end() || found->is_null()) return false;
  if (!found->is_boolean()) throw HttpError(400, "invalid_type", fmt::format("{} must be true or false", name), name);
  return found->get<bool>();
}

std::string root_of(const Job& job) { return job.retry_of.empty() ? job.id : job.retry_of; }

HttpError wrong_state(const std::string& state, const char* what) {
  return {409, "wrong_state", fmt::format("the installation is {}, so it cannot be {}", state, what)};
}

// A repository whose licence has to be accepted first has a page where that is done.
Json error_json(const Job& job, const std::string& endpoint) {
  if (!job.error.is_object()) return nullptr;
  Json error = {{"code", job.error.value("code", "internal")},
                {"message", job.error.value("message", "")},
                {"hint", job.error.value("hint", "")},
                {"page", nullptr}};
  const std::string message = error["message"].get<std::string>();
  if (const size_t gated = message.find(" is gated"); gated != message.npos) {
    error["code"] = "gated";
    error["page"] = endpoint + "/" + message.substr(0, gated);
  }
  return error;
}

}  // namespace

std::string install_id(const std::string& root) { return "ins_" + root; }

Json ModelInstalls::Live::to_json() const {
  Json list = Json::array();
  for (const File& file : files)
    list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"total", file.total}, {"state", file.state}});
  return {
      {"files", list}, {"bytes", bytes}, {"total", total}, {"speed", speed}, {"eta_s", eta_s < 0 ? Json(nullptr) : Json(eta_s)}};
}

Json ModelInstalls::start(const Json& request) {
  for (const auto& [name, value] : request.items())
    if (name != "source" && name != "name" && name != "in_place" && name != "revision")
      throw HttpError(400, "invalid_request", fmt::format("unknown member {}", printable(name)), name);
  const std::string source = text_member(request, "source"), name = text_member(request, "name"),
                    revision = text_member(request, "revision");
  const bool in_place = flag_member(request, "in_place");
  if (source.empty()) throw HttpError(400, "missing_required_parameter", "source is missing", "source");
  if (source.size() > 4096 || name.size() > 100 || revision.size() > 200)
    throw HttpError(400, "invalid_value", "source, name or revision is too long", "source");
  if (!name.empty()) check_model_name(name);
  Json checked = {{"source", source}, {"name", name}, {"in_place", in_place}, {"revision", revision}, {"path", false}};
  if (is_tried_name(source)) {  // a client does not know where the server keeps the files of its runs
    const TriedAdapter tried = tried_adapter(source, queue_.assets().folder());
    if (!tried.rest.empty()) throw HttpError(400, "invalid_value", "source: a weight does not belong here", "source");
    checked["source"] = folders_.checked(tried.file, "source").string();
    checked["path"] = true;
  } else if (source.starts_with('/')) {
    checked["source"] = folders_.checked(source, "source").string();
    checked["path"] = true;
  } else {
    if (in_place) throw HttpError(400, "invalid_value", "in_place can only be used with files on this machine", "in_place");
    if (!find_starter(source) && !parse_source(source, hub_settings_of(context_).endpoint))
      throw HttpError(400, "invalid_value",
                      "source must be a repository (owner/name), an address, the name of a starter set, an absolute path on the "
                      "server or a checkpoint of a training run (run:NAME@STEP)",
                      "source");
  }
  JobQueue::Submission submission;
  submission.request = std::move(checked);
  submission.kind = "download";
  submission.lane = "net";
  const std::string id = queue_.submit(submission).job.id;
  if (submitted_) submitted_();
  return show(install_id(id));
}

InstallRequest ModelInstalls::request_of(const Job& job) const {
  InstallRequest request;
  request.source = job.request.value("source", "");
  request.name = job.request.value("name", "");
  request.revision = job.request.value("revision", "");
  request.in_place = job.request.value("in_place", false);
  request.never_a_path = !job.request.value("path", false);
  request.public_addresses = true;
  request.all_from_start = job.request.value("all_from_start", false);
  request.from_start = job.request.value("from_start", std::vector<std::string>());
  // Links may have changed since the request was checked.
  if (!request.never_a_path) request.source = folders_.checked(request.source, "source").string();
  return request;
}

void ModelInstalls::tell(RunningTask& task, const std::string& root, const FetchStatus& status) {
  Json event, kept;
  double share = 0;
  {
    const std::lock_guard lock(mutex_);
    Live& live = live_[task.job().id];
    for (File& file : live.files) {
      if (file.path != status.file) continue;
      file.bytes = status.file_bytes;
      if (status.file_total > 0) file.total = status.file_total;
      file.state = status.verifying ? "verifying" : file.total > 0 && file.bytes >= file.total ? "completed" : "downloading";
    }
    uint64_t bytes = 0;
    for (const File& file : live.files) bytes += file.bytes;
    live.bytes = bytes;
    live.speed = status.bytes_per_s;
    live.eta_s = status.eta_s;
    share = live.total > 0 ? static_cast<double>(live.bytes) / static_cast<double>(live.total) : 0;
    kept = live.to_json();
    event = {{"id", install_id(root)}, {"file", status.file}, {"bytes", live.bytes},
             {"total", live.total},    {"speed", live.speed}, {"eta_s", live.eta_s < 0 ? Json(nullptr) : Json(live.eta_s)}};
  }
  queue_.events().publish_progress("install.progress", event, task.job().id);
  task.keep(kProgress, std::move(kept));
  task.tell(status.verifying ? "verify" : "download", share, status.file);
}

void ModelInstalls::run(RunningTask& task) {
  const std::string root = root_of(task.job()), id = task.job().id;
  {
    const std::lock_guard lock(mutex_);
    live_[id] = {};  // it may have run here before, until the database was away
  }
  const auto keep_result = [&](bool paused) {
    const std::lock_guard lock(mutex_);
    Json result = live_[id].to_json();
    result["paused"] = paused;
    result["model_keys"] = Json::array();
    task.set_result(result);
    live_.erase(id);
    return result;
  };
  InstallHooks hooks;
  hooks.cancelled = [&] { return task.should_stop(); };
  hooks.note = [&](const std::string& text) { task.context().log.info("{}", text); };
  hooks.warn = [&](const std::string& text) { task.context().log.warn("{}", text); };
  hooks.planned = [&](const std::vector<FetchPlan>& plans) {
    const std::lock_guard lock(mutex_);
    Live& live = live_[id];
    for (const FetchPlan& plan : plans)
      for (const PlannedFile& file : plan.files) {
        live.files.push_back({file.path, file.present ? "completed" : "waiting", file.present ? file.size : 0, file.size});
        live.bytes += file.present ? file.size : 0;
        live.total += file.size;
      }
    return true;
  };
  hooks.copies_planned = [&](const std::vector<PlannedCopy>& copies) {
    const std::lock_guard lock(mutex_);
    Live& live = live_[id];
    for (const PlannedCopy& copy : copies) {
      live.files.push_back({copy.to.filename().string(), "waiting", 0, copy.bytes});
      live.total += copy.bytes;
    }
    return true;
  };
  auto told = std::chrono::steady_clock::time_point{};
  int files_done = 0;
  hooks.fetching = [&](size_t, const FetchStatus& status) {
    const auto now = std::chrono::steady_clock::now();
    if (now - told < kTellEvery && status.files_done == files_done) return;
    told = now, files_done = status.files_done;
    tell(task, root, status);
  };
  hooks.copying = [&](uint64_t done, uint64_t total, const std::string& file) {
    {
      const std::lock_guard lock(mutex_);
      Live& live = live_[id];
      live.bytes = done;
      if (const auto now = std::chrono::steady_clock::now(); now - told >= kTellEvery)
        told = now, task.keep(kProgress, live.to_json());
    }
    task.tell("copy", total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0, file);
    return true;
  };
  hooks.registering = [&] {
    {
      const std::lock_guard lock(mutex_);
      Live& live = live_[id];
      live.bytes = live.total;
      for (File& file : live.files) file.bytes = file.total, file.state = "completed";
    }
    task.tell("install", 1);
  };
  task.tell("download", 0);
  try {
    const std::vector<ModelRecord> records = install_model(task.context(), request_of(task.job()), hooks);
    Json result = keep_result(false);
    for (const ModelRecord& record : records) result["model_keys"].push_back(record.key);
    task.set_result(result);
    if (installed_) installed_();
    queue_.events().publish("install.completed",
                            {{"id", install_id(root)},
                             {"model_keys", result["model_keys"]},
                             {"model_key", records.empty() ? Json(nullptr) : Json(records.front().key)}},
                            id);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::Cancelled)
      if (const auto now = queue_.store().get(id); now && now->pause) {
        keep_result(true);
        return task.end_as("cancelled");
      }
    keep_result(false);
    if (e.code() != ErrorCode::Cancelled)
      queue_.events().publish("install.error", {{"id", install_id(root)}, {"message", e.what()}, {"hint", e.hint().plain()}}, id);
    throw;
  } catch (...) {
    keep_result(false);
    throw;
  }
}

std::vector<ModelInstalls::Chain> ModelInstalls::chains() {
  std::vector<Chain> chains;
  JobFilter filter;
  filter.kind = "download";
  filter.limit = kListed;
  for (const Job& job : queue_.store().list(filter)) {
    const std::string root = root_of(job);
    const auto known = std::find_if(chains.begin(), chains.end(), [&](const Chain& c) { return c.root == root; });
    if (known == chains.end()) chains.push_back({root, job, {job.id}});
    else known->jobs.push_back(job.id);
  }
  return chains;
}

ModelInstalls::Chain ModelInstalls::chain_of(const std::string& id) {
  const std::string root = id_without_prefix(id, "ins_");
  for (Chain& chain : chains())
    if (chain.root == root) return std::move(chain);
  throw HttpError(404, "not_found", "installation not found");
}

std::string ModelInstalls::state_of(const Chain& chain) {
  const Job& job = chain.last;
  if (!job.is_final() && job.pause) return "paused";
  if (job.state == "queued") return "waiting";
  if (job.state == "cancelling") return "cancelled";
  if (job.state == "running")
    return job.phase == "verify" ? "verifying" : job.phase == "install" || job.phase == "copy" ? "installing" : "downloading";
  // A job that was asked to end, and whose process was killed before it did, is one that failed in the database.
  const bool ended_as_asked = job.cancel && job.error.is_object() && job.error.value("code", "") == "interrupted";
  if (job.state == "failed" && !ended_as_asked) return "error";
  if (job.state == "completed") return "completed";
  const bool paused = job.pause || (job.result.is_object() && job.result.value("paused", false));
  return paused ? "paused" : "cancelled";
}

Json ModelInstalls::shown(const Chain& chain) {
  const Job& job = chain.last;
  const std::string state = state_of(chain);
  Json json = {{"id", install_id(chain.root)},
               {"source", job.request.value("source", "")},
               {"name", job.request.value("name", "")},
               {"state", state},
               {"job_id", "job_" + job.id},
               {"created_at", rfc3339(job.created)},
               {"error", state == "error" ? error_json(job, hub_settings_of(context_).endpoint) : Json(nullptr)},
               {"model_key", nullptr},
               {"model_keys", Json::array()}};
  Json progress = Live{}.to_json();
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(job.id);
    if (found != live_.end()) progress = found->second.to_json();
    else if (job.result.is_object() && job.result.contains("files")) progress = job.result;
    else if (job.resolved.is_object() && job.resolved.contains(kProgress)) progress = job.resolved[kProgress];
  }
  for (const char* name : {"files", "bytes", "total", "speed", "eta_s"}) json[name] = progress[name];
  if (job.is_final()) json["speed"] = 0, json["eta_s"] = nullptr;
  if (job.result.is_object() && job.result.contains("model_keys")) {
    json["model_keys"] = job.result["model_keys"];
    if (!json["model_keys"].empty()) json["model_key"] = json["model_keys"][0];
  }
  return json;
}

Json ModelInstalls::list() {
  Json items = Json::array();
  for (const Chain& chain : chains()) items.push_back(shown(chain));
  return items;
}

Json ModelInstalls::show(const std::string& id) { return shown(chain_of(id)); }

Json ModelInstalls::pause(const std::string& id) {
  const Chain chain = chain_of(id);
  if (chain.last.is_final()) throw wrong_state(state_of(chain), "paused");
  const int64_t now = now_ms();
  const auto after = queue_.store().pause(chain.last.id, now);
  if (after && after->state == "cancelled" && after->finished == now) queue_.finished(*after);  // it waited
  return show(id);
}

std::string ModelInstalls::submit_again(const Chain& chain, const Json& changes) {
  JobQueue::Submission submission;
  submission.request = chain.last.request;
  for (const char* once : {"all_from_start", "from_start"}) submission.request.erase(once);
  submission.request.update(changes);
  submission.kind = "download";
  submission.lane = "net";
  submission.retry_of = chain.root;
  return queue_.submit(submission).job.id;
}

Json ModelInstalls::again(const Chain& chain, const Json& changes) {
  submit_again(chain, changes);
  if (submitted_) submitted_();
  return show(install_id(chain.root));
}

Json ModelInstalls::resume(const std::string& id) {
  const Chain chain = chain_of(id);
  const std::string state = state_of(chain);
  // The job of one that was just paused may still be ending. The next job waits for its turn behind it.
  const bool is_stopped = chain.last.is_final() || state == "paused";
  if (!is_stopped || state == "completed") throw wrong_state(state, "resumed");
  return again(chain, Json::object());
}

Json ModelInstalls::restart(const std::string& id) {
  const Chain chain = chain_of(id);
  if (!chain.last.is_final() || chain.last.state == "completed") throw wrong_state(state_of(chain), "restarted");
  return again(chain, {{"all_from_start", true}});
}

Json ModelInstalls::restart_file(const std::string& id, const std::string& path) {
  const Chain chain = chain_of(id);
  if (!chain.last.is_final()) throw wrong_state(state_of(chain), "restarted");
  const Json files = shown(chain)["files"];
  if (std::none_of(files.begin(), files.end(), [&](const Json& file) { return file["path"] == path; }))
    throw HttpError(404, "not_found", "file not found in this installation", "path");
  return again(chain, {{"from_start", {path}}});
}

Json ModelInstalls::cancel(const std::string& id) {
  const Chain chain = chain_of(id);
  const std::string state = state_of(chain);
  if (state == "completed" || state == "error") throw wrong_state(state, "cancelled");
  // The job of a paused one has ended. Another one ends as cancelled, so that this is known after a restart too.
  std::string last = chain.last.id;
  if (state == "paused" && chain.last.is_final()) last = submit_again(chain, Json::object());
  if (state != "cancelled") queue_.cancel(last);
  return show(id);
}

void ModelInstalls::remove(const std::string& id) {
  const Chain chain = chain_of(id);
  if (!chain.last.is_final()) throw wrong_state(state_of(chain), "removed");
  for (const std::string& job : chain.jobs) queue_.store().remove(job);
}

int64_t ModelInstalls::prune() {
  int64_t count = 0;
  for (const Chain& chain : chains()) {
    if (!chain.last.is_final() || state_of(chain) == "paused") continue;
    for (const std::string& job : chain.jobs) queue_.store().remove(job);
    ++count;
  }
  return count;
}

}  // namespace flux2
