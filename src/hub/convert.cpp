#include "hub/convert.h"

#include <algorithm>
#include <list>
#include <mutex>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/path_exists.h"
#include "base/resumable_file.h"
#include "base/thread_pool.h"
#include "hub/component_config.h"
#include "hub/weight_encoder.h"
#include "weights/weight_files.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkElements = 4 << 20;  // read and rounded at a time: 16 MB as f32
constexpr uint64_t kMarkBytes = 64 << 20;    // between two marks, each of which waits for the disk

// Rows of a weight in the order of a file, with what is needed to store them.
struct Encoding {
  WeightRows rows;
  WeightEncoder encoder;

  Encoding(const NamedWeights& weights, const PlannedTensor& t, ThreadPool& threads)
      : rows(weights, t.canonical), encoder(t.type, rows, row_list(t), threads) {}

  static std::vector<int64_t> row_list(const PlannedTensor& t) {
    std::vector<int64_t> list;
    for (const IndexRange& r : t.rows)
      for (int64_t i = r.begin; i < r.end; ++i) list.push_back(i);
    return list;
  }
};

// Shared by all files of one conversion.
struct Work {
  const NamedWeights& weights;
  const ConvertOptions& options;
  ThreadPool threads;
  uint64_t total_bytes = 0, done_bytes = 0;
  ConvertReport report = {};
  SquaredError error = {};
};

class FileWriter {
 public:
  FileWriter(Work& work, ConvertPlan plan, const fs::path& path)
      : work_(work), plan_(std::move(plan)), path_(path), file_(path, fingerprint()) {}

  const ConvertPlan& plan() const { return plan_; }
  uint64_t missing_bytes() const { return plan_.total_bytes() - file_.size(); }
  void commit() { file_.commit(); }

  void write(const Log& log) {
    work_.report.resumed_from += file_.resumed_from();
    if (file_.size() > 0) log.info("continuing {} after {} MB", path_.string(), file_.size() >> 20);
    else file_.write(std::as_bytes(std::span(plan_.header)));
    uint64_t end = plan_.header.size(), marked = file_.size();
    for (const PlannedTensor& t : plan_.tensors) {
      end += t.bytes() + plan_.padding_of(t);
      if (end <= file_.size() && t.bytes() > 0) continue;  // an earlier attempt wrote it
      write(t);
      if (file_.size() - marked >= kMarkBytes) file_.mark(), marked = file_.size();
      const auto& progress = work_.options.progress;
      if (progress && !progress(work_.done_bytes + file_.size(), work_.total_bytes, t.name)) {
        file_.mark();
        fail(ErrorCode::Cancelled, "stopped; run the same command again to continue");
      }
    }
    file_.mark();
    work_.done_bytes += file_.size();
    work_.report.bytes += file_.size();
    work_.report.tensors += plan_.tensors.size();
  }

 private:
  // Everything that determines the bytes: the header (names and types) and the source files.
  std::string fingerprint() const {
    std::string text = plan_.header;
    for (const StoredTensor& t : work_.weights.source().tensors())
      if (t.file) {
        std::error_code ignored;
        const auto time = std::filesystem::last_write_time(t.file->path(), ignored).time_since_epoch().count();
        text += fmt::format("{} {} {}\n", t.file->path().string(), t.file->bytes().size(), time);
      }
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    return fmt::format("{:016x} {}", hash, plan_.total_bytes());
  }

  void write(const PlannedTensor& t) {
    using Role = PlannedTensor::Role;
    switch (t.role) {
      case Role::Text: file_.write(std::as_bytes(std::span(t.text))); break;
      case Role::Scales: file_.write(std::as_bytes(std::span(encoding(t).encoder.scales()))); break;
      case Role::TiledScales: file_.write(encoding(t).encoder.tiled_scales(work_.threads)); break;
      case Role::Values: write_values(t); break;
    }
    const std::vector<std::byte> zeros(plan_.padding_of(t));
    file_.write(zeros);
    // Otherwise the pages of all tensors read so far would displace memory that other programs need.
    if (t.role != Role::Text) work_.weights.forget_pages(t.canonical);
  }

  Encoding& encoding(const PlannedTensor& t) {
    auto& known = encodings_[t.weight];
    if (!known) known = std::make_unique<Encoding>(work_.weights, t, work_.threads);
    return *known;
  }

  void write_values(const PlannedTensor& t) {
    const Encoding& e = encoding(t);
    const WeightEncoder& encoder = e.encoder;
    const int64_t chunk = std::max<int64_t>(1, kChunkElements / e.rows.width());
    std::vector<std::byte> stored;
    SquaredError error;
    std::mutex sums;
    for (int64_t first = 0; first < encoder.count(); first += chunk) {
      const int64_t count = std::min<int64_t>(chunk, encoder.count() - first);
      stored.resize(static_cast<size_t>(count) * encoder.row_bytes());
      work_.threads.parallel_ranges(count, 4, [&](int64_t begin, int64_t end) {
        SquaredError mine;
        for (int64_t i = begin; i < end; ++i)
          mine.add(encoder.encode(first + i, stored.data() + static_cast<size_t>(i) * encoder.row_bytes()));
        const std::lock_guard lock(sums);
        error.add(mine);
      });
      file_.write(stored);
    }
    if (!encoder.is_copy()) {
      work_.report.changed.push_back({t.name, e.rows.stored_as(), t.type.name(), error.relative()});
      work_.error.add(error);
    }
    encodings_.erase(t.weight);
  }

  Work& work_;
  ConvertPlan plan_;
  fs::path path_;
  ResumableFile file_;
  std::map<std::string, std::unique_ptr<Encoding>> encodings_;  // of weights whose scales are written and values are not
};

void check_space(const fs::path& out, uint64_t wanted) {
  std::error_code unknown;
  const auto folder = out.parent_path().empty() ? fs::path(".") : out.parent_path();
  const auto space = fs::space(folder, unknown);
  if (unknown || space.available >= wanted) return;
  throw Error(
      ErrorCode::CannotWrite,
      fmt::format("{} needs {} MB, {} has {} MB free", out.string(), wanted >> 20, folder.string(), space.available >> 20),
      "make room, or write to another disk");
}

void write_json(const fs::path& path, const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

// transformers converts all weights to the type that config.json names.
const char* torch_name(DType dtype) { return dtype == DType::F32 ? "float32" : dtype == DType::F16 ? "float16" : "bfloat16"; }

std::string index_name(const std::string& stem) { return stem + ".safetensors.index.json"; }

// Weights and indices of an older model of that stem in the folder, which could be read instead of the result.
std::vector<fs::path> older_files(const fs::path& folder, const std::string& stem, const std::vector<std::string>& names) {
  std::vector<fs::path> older;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    const auto series = series_name(name);
    const bool is_part = series && series->stem == stem && name.ends_with(".safetensors");
    const bool is_index = name == index_name(stem) && names.size() == 1;
    if ((is_part || is_index || name == stem + ".safetensors") && std::find(names.begin(), names.end(), name) == names.end())
      older.push_back(entry->path());
  }
  return older;
}

// The class that diffusers reads a folder with, by its config.json.
std::string class_of(const Json& config) {
  if (!config.is_object()) return "";
  const auto name = config.find("_class_name");
  return name != config.end() && name->is_string() ? name->get<std::string>() : "";
}

// The files that diffusers and transformers expect next to the weights.
void write_folder_files(const fs::path& folder, const std::string& stem, const NamedWeights& weights,
                        const std::vector<ConvertPlan>& plans, const std::vector<std::string>& names) {
  Json config = config_of(weights);
  Json map = Json::object();
  uint64_t bytes = 0;
  DType embedding = DType::BF16;
  for (size_t i = 0; i < plans.size(); ++i)
    for (const PlannedTensor& t : plans[i].tensors) {
      map[t.name] = names[i];
      bytes += t.bytes();
      if (t.canonical == "model.embed_tokens.weight") embedding = t.dtype;
      if (t.type.scales == Scales::Blocks)
        config["quantization_config"] = {{"quant_method", "fp8"},
                                         {"fmt", "e4m3"},
                                         {"activation_scheme", "dynamic"},
                                         {"weight_block_size", {kScaleBlock, kScaleBlock}},
                                         {"modules_to_not_convert", {"lm_head"}}};
    }
  if (weights.part() == ModelPart::TextEncoder)
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(embedding);
  write_json(folder / "config.json", config);
  if (plans.size() > 1) write_json(folder / index_name(stem), {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}});
}

}  // namespace

ConvertReport convert_model(const NamedWeights& weights, const ConvertOptions& options, const Log& log) {
  check(!weights.names().empty(), "{} holds no {}", weights.source().description(), name_of(weights.part()));
  std::vector<ConvertPlan> plans = plan_conversion(weights, options.choice);
  const std::string stem = weights.part() == ModelPart::TextEncoder ? "model" : "diffusion_pytorch_model";
  check(plans.size() == 1 || options.as_folder, "several output files need a folder, but {} is not one", options.out.string());
  std::vector<std::string> names;
  std::vector<fs::path> paths;
  for (size_t i = 0; i < plans.size(); ++i) {
    names.push_back(plans.size() == 1 ? stem + ".safetensors"
                                      : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, plans.size()));
    paths.push_back(options.as_folder ? options.out / names.back() : options.out);
    for (const StoredTensor& t : weights.source().tensors())
      check(!t.file || !fs::exists(paths.back()) || !fs::equivalent(t.file->path(), paths.back()), "{} would overwrite itself",
            paths.back().string());
  }
  std::vector<fs::path> older;
  if (options.as_folder) {
    fs::create_directories(options.out);
    older = older_files(options.out, stem, names);
    // Transformer and autoencoder have the same file names in this layout.
    if (const fs::path config = options.out / "config.json"; path_exists(config))
      if (class_of(read_json(config)) != class_of(config_of(weights)))
        throw Error(
            ErrorCode::InvalidArgument,
            fmt::format("the folder {} holds another part of a model, which the result would replace", options.out.string()),
            "choose another folder");
    for (const fs::path& file : older)
      for (const StoredTensor& t : weights.source().tensors())
        if (std::error_code failure; t.file && fs::equivalent(t.file->path(), file, failure))
          throw Error(ErrorCode::InvalidArgument,
                      fmt::format("the folder {} holds the model that is converted, which the result would replace",
                                  options.out.string()),
                      "choose another folder");
  }

  Work work{weights, options, ThreadPool(options.threads)};
  std::list<FileWriter> files;
  uint64_t missing = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    work.total_bytes += plans[i].total_bytes();
    missing += files.emplace_back(work, plans[i], paths[i]).missing_bytes();
  }
  check_space(paths[0], missing);
  for (FileWriter& file : files) file.write(log);
  for (FileWriter& file : files) file.commit();  // all or none: what is there under its name is complete
  if (options.as_folder) write_folder_files(options.out, stem, weights, plans, names);
  for (const fs::path& file : older) {
    std::error_code failure;
    fs::remove(file, failure);
    if (failure)
      fail(ErrorCode::CannotWrite, "cannot delete {}, which is read instead of the result: {}", file.string(), failure.message());
    log.warn("deleted {}, which belonged to an older model", file.string());
  }
  work.report.total_error = work.error.relative();
  return std::move(work.report);
}

}  // namespace flux2
