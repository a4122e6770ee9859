#include "app/selftest.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "app/model_choice.h"
#include "base/file_hash.h"
#include "engine/cpu_levels.h"
#include "engine/engine.h"
#include "pipeline/text_states.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr const char* kReference = "selftest.json";
constexpr const char* kPrompt = "a large red circle in the center on a blue background";
constexpr size_t kSamples = 768;  // kept of each stage, evenly spread

// Measured on x86_64, from plain kernels to AMX: 3e-6 for exact, 7e-3 for fast, 3e-2 for int8. A GPU adds up in another order and
// keeps activations in bf16; its tolerances are wider and were not measured. Few steps are run, so that rounding cannot grow
// much.
constexpr double kExact = 1e-4, kFast = 0.03, kQuantised = 0.15;
constexpr double kExactGpu = 2e-3, kFastGpu = 0.1, kQuantisedGpu = 0.25;

struct Way {
  std::string device, profile = "exact", quant = "none";
  double tolerance = kExact;

  std::string name() const { return device + " " + profile + (quant == "none" ? "" : " " + quant); }
};

std::vector<Way> ways_of_this_machine() {
  std::vector<Way> ways;
  for (const std::string& level : cpu_levels()) {
    ways.push_back({.device = "cpu:" + level});
    if (level != "scalar") ways.push_back({.device = "cpu:" + level, .profile = "fast", .tolerance = kFast});
  }
  ways.push_back({.device = "cpu", .profile = "fast", .quant = "int8", .tolerance = kQuantised});
  for (const DeviceReport& device : list_devices()) {
    if (device.name == "cpu" || !device.usable) continue;
    ways.push_back({.device = device.name, .tolerance = kExactGpu});
    ways.push_back({.device = device.name, .profile = "fast", .tolerance = kFastGpu});
    ways.push_back({.device = device.name, .profile = "fast", .quant = "int8", .tolerance = kQuantisedGpu});
  }
  return ways;
}

Request test_request(const ModelFiles& files) {
  Request request;
  request.prompt = kPrompt;
  request.width = files.defaults.width, request.height = files.defaults.height;
  request.steps = 2;
  request.cfg = files.defaults.guidance;
  request.seed = 7;
  return request;
}

std::vector<float> samples_of(const std::vector<float>& values) {
  std::vector<float> kept;
  const size_t stride = std::max<size_t>(1, values.size() / kSamples) | 1;  // odd: walks through channels and rows alike
  for (size_t i = 0; i < values.size() && kept.size() < kSamples; i += stride) kept.push_back(values[i]);
  return kept;
}

struct Stages {
  std::vector<float> text, latents, image;
};

Stages run_model(const ModelFiles& files, const Way& way, const std::function<bool()>& cancelled) {
  const Engine engine({.device = way.device,
                       .profile = way.profile == "exact" ? Profile::Exact : Profile::Fast,
                       .quant = quant_named(way.quant)});
  const Progress progress{.report = {}, .cancelled = cancelled};
  const auto session = engine.open(files, progress);
  Stages stages;
  stages.text = samples_of(text_states(*session, kPrompt, "text", progress).to_floats());
  text_to_image(*session, test_request(files), progress, [&](const Picture& picture) {
    stages.latents = samples_of(picture.latents);
    stages.image = samples_of(picture.decoded.planes().values);
  });
  return stages;
}

double deviation(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double d = static_cast<double>(found[i]) - expected[i];
    difference += d * d;
    size += static_cast<double>(expected[i]) * expected[i];
  }
  const double relative = std::sqrt(difference / size);
  return std::isfinite(relative) ? relative : INFINITY;
}

Hint remedy_for(const Way& way) {
  const Hint report(
      "this build computes wrong numbers on this processor: build it again with another compiler, and report the "
      "output of {0}",
      {run_command("version -v")});
  if (way.device.starts_with("cuda"))
    return way.quant == "none" ? Hint("update the NVIDIA driver; until then use {0}", {set_option("device", "cpu")})
                               : Hint("use {0}, or {1}", {set_option("quant", "none"), set_option("device", "cpu")});
  if (way.quant != "none") return {"use {0}", {set_option("quant", "none")}};
  if (way.profile == "fast")
    return {"use {0}, and report the output of {1}", {set_option("profile", "exact"), run_command("version -v")}};
  return report;
}

std::vector<float> numbers_of(const Json& results, const char* stage) {
  std::vector<float> numbers;
  const auto list = results.find(stage);
  if (list == results.end() || !list->is_array()) fail(ErrorCode::BadFile, "{} has no list \"{}\"", kReference, stage);
  for (const Json& number : *list) {
    if (!number.is_number()) fail(ErrorCode::BadFile, "{}: \"{}\" is not a list of numbers", kReference, stage);
    numbers.push_back(number.get<float>());
  }
  return numbers;
}

void compare(SelftestResult& result, const Stages& found, const Json& expected) {
  for (const auto& [stage, values] : {std::pair{"text", &found.text}, {"latents", &found.latents}, {"image", &found.image}}) {
    const double d = deviation(*values, numbers_of(expected, stage));
    if (result.stage.empty() || d > result.deviation) result.stage = stage, result.deviation = d;
    // Stages after a wrong one are wrong too, so the first is reported.
    if (d > result.tolerance && result.problem.empty()) {
      result.problem = fmt::format("the {} differ{} from the stored result by {:.2g}, more than {:.2g}",
                                   stage == std::string_view("text") ? "text states" : stage,
                                   stage == std::string_view("image") ? "s" : "", d, result.tolerance);
      result.stage = stage, result.deviation = d;
      return;
    }
  }
}

// The bundled model whose results are stored.
fs::path tested_model(const AppContext& context) {
  const std::vector<fs::path> folders = bundled_models(context.environment);
  if (folders.empty())
    throw Error(ErrorCode::NotFound, "the bundled model was not found, which the test needs",
                "set FLUX2_BUNDLED to its folder (models/pico of the sources)");
  return folders.back();
}

ModelFiles files_of(const fs::path& folder, const AppContext& context) {
  ModelQuery query;
  query.model = folder.string();
  query.bundled = folder;
  return locate_model(query, context.log);
}

// The files that determine the results, relative to the model's folder.
std::vector<fs::path> tested_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != kReference && entry.path().extension() != ".md")
      files.push_back(entry.path().lexically_relative(folder));
  std::sort(files.begin(), files.end());
  return files;
}

SelftestResult check_file(const fs::path& folder, const std::string& name, const std::string& expected) {
  SelftestResult result{.what = "file " + name};
  std::string found;
  try {
    found = sha256_of_file(folder / name);
  } catch (const Error& e) {
    result.problem = e.what();
  }
  if (result.problem.empty() && found != expected) result.problem = "the file was changed: its SHA-256 is another one";
  if (!result.problem.empty()) result.remedy = "install the program again, or restore the folder " + folder.string();
  return result;
}

}  // namespace

bool SelftestReport::passed() const {
  return std::all_of(results.begin(), results.end(), [](const SelftestResult& r) { return r.passed(); });
}

SelftestReport selftest(const AppContext& context, const std::string& device,
                        const std::function<void(const SelftestResult&)>& done, const std::function<bool()>& cancelled) {
  std::vector<Way> ways = ways_of_this_machine();
  if (device != "auto") std::erase_if(ways, [&](const Way& way) { return !way.device.starts_with(device); });
  check(!ways.empty(), "cannot test the device \"{}\": it does not exist", device);
  const fs::path folder = tested_model(context);
  const ModelFiles files = files_of(folder, context);
  const Json reference = in_context("reading the stored results", [&] { return read_json(folder / kReference); });
  SelftestReport report;
  const auto add = [&](SelftestResult result) {
    if (done) done(result);
    report.results.push_back(std::move(result));
  };
  const auto part = [&](const char* name) -> const Json& {
    const auto at = reference.is_object() ? reference.find(name) : reference.end();
    if (!reference.is_object() || at == reference.end() || !at->is_object())
      fail(ErrorCode::BadFile, "{} has no object \"{}\"", (folder / kReference).string(), name);
    return *at;
  };
  for (const auto& [name, unused] : part("files").items()) {
    std::string hash;
    in_context((folder / kReference).string(), [&] { read_member(part("files"), name.c_str(), hash); });
    add(check_file(folder, name, hash));
    report.files_intact = report.files_intact && report.results.back().passed();
  }
  for (const Way& way : ways) {
    SelftestResult result{.what = way.name(), .tolerance = way.tolerance};
    const auto start = std::chrono::steady_clock::now();
    try {
      compare(result, run_model(files, way, cancelled), part("results"));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::Cancelled) throw;
      result.problem = e.what();
    }
    if (!result.passed())
      result.remedy = report.files_intact ? remedy_for(way) : Hint("the files of the model were changed, see above");
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    add(std::move(result));
  }
  return report;
}

Json selftest_reference(const AppContext& context) {
  const fs::path folder = tested_model(context);
  const Stages stages = run_model(files_of(folder, context), {.device = "cpu:scalar"}, {});
  Json reference = {{"files", Json::object()}, {"results", Json::object()}};
  for (const fs::path& file : tested_files(folder)) reference["files"][file.string()] = sha256_of_file(folder / file);
  const auto rounded = [](const std::vector<float>& values) {
    Json list = Json::array();
    for (const float v : values) list.push_back(std::stod(fmt::format("{:.6g}", v)));
    return list;
  };
  reference["results"] = {{"text", rounded(stages.text)}, {"latents", rounded(stages.latents)}, {"image", rounded(stages.image)}};
  return reference;
}

}  // namespace flux2
