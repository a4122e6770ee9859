#include "train/log/state_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "train/log/free_space.h"
#include "weights/open_tensor.h"
#include "weights/safetensors_file.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStateJson = "state.json";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kEmaFile = "ema.safetensors";
constexpr const char* kTemporary = ".tmp";
constexpr const char* kReplaced = ".old";  // only on file systems that cannot exchange two names

// Ours, and with one loss for every batch of an epoch.
constexpr JsonLimits kStateJsonLimits = {.bytes = size_t{512} << 20, .keys = 1'000'000, .values = 20'000'000};

const char* weights_file(bool full_model) { return full_model ? "model.safetensors" : "adapter.safetensors"; }

fs::path with_ending(const fs::path& folder, const char* ending) { return folder.string() + ending; }

// /a/b/ → /a/b, so that a name can be appended
fs::path without_slash(const fs::path& folder) {
  const fs::path whole = folder.lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

void flush_folder(const fs::path& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::CannotWrite, "cannot open folder {}: {}", folder.string(), std::strerror(errno));
  const bool flushed = ::fsync(fd) == 0 || errno == EINVAL;  // some file systems cannot flush a folder
  const int reason = errno;
  ::close(fd);
  if (!flushed) fail(ErrorCode::CannotWrite, "cannot flush folder {}: {}", folder.string(), std::strerror(reason));
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail(ErrorCode::CannotWrite, "cannot rename {} to {}: {}", from.string(), to.string(), std::strerror(errno));
}

void remove_folder(const fs::path& folder) {
  std::error_code failure;
  fs::remove_all(folder, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot remove {}: {}", folder.string(), failure.message());
}

bool exchange_names(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

std::string utc_now() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const auto seconds = system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  const auto fraction = duration_cast<milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format("{}.{:03}Z", std::string_view(text, size), fraction);
}

uint64_t bytes_of_tensors(const NamedTensors& tensors) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<uint64_t>(tensor.bytes()) + 256;  // and its place in the header
  return bytes;
}

// The files of a state and their sizes, which show whether it was copied completely.
Json file_sizes(const fs::path& folder) {
  Json sizes = Json::object();
  for (const auto& entry : fs::directory_iterator(folder)) sizes[entry.path().filename().string()] = entry.file_size();
  return sizes;
}

void check_files(const fs::path& folder, const Json& json) {
  if (!json.contains("files") || !json["files"].is_object()) fail(ErrorCode::BadFile, "\"files\" is missing");
  for (const auto& [name, size] : json["files"].items()) {
    if (!size.is_number_unsigned()) fail(ErrorCode::BadFile, "\"files\" has no size for {}", printable(name));
    std::error_code failure;
    const uint64_t found = fs::file_size(folder / fs::path(name).filename(), failure);
    if (failure) fail(ErrorCode::BadFile, "{} is missing", printable(name));
    if (found != size.get<uint64_t>())
      fail(ErrorCode::BadFile, "{} has {} bytes instead of {}", printable(name), found, size.get<uint64_t>());
  }
}

NamedTensors read_tensors(const fs::path& file) {
  NamedTensors tensors;
  const SafetensorsFile stored(file);
  for (const StoredTensor& t : stored.tensors()) tensors.emplace_back(t.name, open_tensor(t));
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return tensors;
}

Json read_complete_json(const fs::path& folder) {
  if (!is_folder(folder)) fail(ErrorCode::NotFound, "the state folder {} does not exist", folder.string());
  return in_context("reading state " + folder.string(), [&] {
    if (!is_file(folder / kStateJson)) fail(ErrorCode::BadFile, "{} is missing, so this is not a complete state", kStateJson);
    Json json = read_json(folder / kStateJson, kStateJsonLimits);
    check_files(folder, json);
    return json;
  });
}

// Puts a complete folder in place of another one, or where none is.
void take_place(const fs::path& temporary, const fs::path& folder, const std::function<void(const char*)>& before) {
  before("rename");
  if (!path_exists(folder)) {
    rename_folder(temporary, folder);
  } else if (exchange_names(temporary, folder)) {
    before("remove the replaced state");
    remove_folder(temporary);
  } else {
    const fs::path replaced = with_ending(folder, kReplaced);
    remove_folder(replaced);
    rename_folder(folder, replaced);
    before("rename after moving the old state away");
    rename_folder(temporary, folder);
    before("remove the replaced state");
    remove_folder(replaced);
  }
}

}  // namespace

void write_state(const fs::path& given, const TrainState& state, const StateTensors& tensors,
                 const std::function<void(const char* action)>& on_write) {
  const fs::path folder = without_slash(given), temporary = with_ending(folder, kTemporary);
  const auto before = [&](const char* action) {
    if (on_write) on_write(action);
  };
  constexpr uint64_t kRoomForJson = 1 << 20;
  const uint64_t needed = bytes_of_tensors(tensors.weights) + bytes_of_tensors(tensors.optimizer) +
                          bytes_of_tensors(tensors.ema) + state.loss_window.size() * 32 + kRoomForJson;
  in_context("writing state " + folder.string(), [&] {
    before("remove leftovers");
    remove_folder(temporary);
    check_free_space(folder.parent_path(), needed, "the state");
    before("create the folder");
    std::error_code failure;
    fs::create_directories(temporary, failure);
    if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", temporary.string(), failure.message());
    try {
      before("weights");
      save_tensors(temporary / weights_file(tensors.full_model), tensors.weights);
      before("optimizer");
      save_tensors(temporary / kOptimizerFile, tensors.optimizer);
      before("average");
      if (!tensors.ema.empty()) save_tensors(temporary / kEmaFile, tensors.ema);
      before("state.json");
      TrainState stamped = state;
      stamped.saved_at = utc_now();
      Json json = to_json(stamped);
      json["files"] = file_sizes(temporary);
      const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
      AtomicFile file(temporary / kStateJson);
      file.write(text.data(), text.size());
      file.commit();
      before("flush the folder");
      flush_folder(temporary);
    } catch (...) {
      fs::remove_all(temporary, failure);  // a full disk gets its space back
      throw;
    }
    take_place(temporary, folder, before);
    before("flush the parent folder");
    flush_folder(folder.parent_path());
  });
}

LoadedState read_state(const fs::path& given) {
  const fs::path folder = without_slash(given);
  const Json json = read_complete_json(folder);
  return in_context("reading state " + folder.string(), [&] {
    LoadedState loaded;
    loaded.state = train_state_from(json);
    loaded.tensors.full_model = json["files"].contains(weights_file(true));
    loaded.tensors.weights = read_tensors(folder / weights_file(loaded.tensors.full_model));
    loaded.tensors.optimizer = read_tensors(folder / kOptimizerFile);
    if (json["files"].contains(kEmaFile)) loaded.tensors.ema = read_tensors(folder / kEmaFile);
    return loaded;
  });
}

TrainState read_state_json(const fs::path& given) {
  const fs::path folder = without_slash(given);
  const Json json = read_complete_json(folder);
  return in_context("reading state " + folder.string(), [&] { return train_state_from(json); });
}

std::optional<fs::path> newest_state(const OutputNames& names) {
  std::optional<fs::path> newest;
  std::pair<std::string, int64_t> newest_key;  // saved_at sorts as text
  std::error_code failure;
  for (fs::directory_iterator entry(names.folder.empty() ? fs::path(".") : names.folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (!names.is_state_name(entry->path().filename().string()) || !is_folder(entry->path())) continue;
    try {
      const TrainState state = read_state_json(entry->path());
      // The last state of a run NAME-000001 has the name of a state of the run NAME.
      if (state.options.contains("output_name") && state.options["output_name"] != names.name) continue;
      const std::pair key(state.saved_at, state.step);
      if (newest && key <= newest_key) continue;
      newest = entry->path();
      newest_key = key;
    } catch (const Error&) {  // an incomplete or foreign state
    }
  }
  return newest;
}

std::vector<fs::path> remove_leftover_states(const OutputNames& names) {
  std::vector<fs::path> leftovers, removed;
  std::error_code failure;
  for (fs::directory_iterator entry(names.folder.empty() ? fs::path(".") : names.folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const fs::path& path = entry->path();
    const bool ours = path.extension() == kTemporary || path.extension() == kReplaced;
    if (ours && names.is_state_name(path.stem().string()) && entry->is_directory(failure)) leftovers.push_back(path);
  }
  for (const fs::path& path : leftovers) {
    const fs::path folder = path.parent_path() / path.stem();
    if (path.extension() == kReplaced && !path_exists(folder)) {
      rename_folder(path, folder);  // it was moved away, and its successor never came
      continue;
    }
    remove_folder(path);
    removed.push_back(path);
  }
  return removed;
}

void remove_state(const fs::path& given) {
  const fs::path folder = without_slash(given), temporary = with_ending(folder, kTemporary);
  remove_folder(temporary);
  rename_folder(folder, temporary);
  remove_folder(temporary);
}

std::optional<fs::path> musubi_state_weights(const fs::path& folder) {
  if (is_file(folder / kStateJson) || !is_file(folder / "model.safetensors")) return std::nullopt;
  for (const char* pickle : {"optimizer.bin", "scheduler.bin", "random_states_0.pkl"})
    if (is_file(folder / pickle)) return folder / "model.safetensors";
  return std::nullopt;
}

}  // namespace flux2
