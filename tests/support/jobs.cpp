#include "tests/support/jobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "image/read_image.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2::test {

namespace {

bool is_hex_name(const std::string& name, size_t digits) {
  return name.size() == digits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A small adapter for the bundled model.
void write_small_adapter(const fs::path& path) {
  const Shape shape = open_weights(pico("flux-2-pico.safetensors"))->find("single_blocks.0.linear2.weight")->shape;
  std::vector<float> values;
  for (int64_t i = 0; i < 2 * (shape[0] + shape[1]); ++i) values.push_back(static_cast<float>(i * 37 % 101) / 400 - 0.12f);
  save_tensors(path, {{"diffusion_model.single_blocks.0.linear2.lora_A.weight",
                       Tensor::host_copy(values.data(), DType::F32, {2, shape[1]})},
                      {"diffusion_model.single_blocks.0.linear2.lora_B.weight",
                       Tensor::host_copy(values.data() + 2 * shape[1], DType::F32, {shape[0], 2})}});
}

}  // namespace

void JobTest::SetUp() {
  Cli::SetUp();
  write_small_adapter(folder_ / "ink.safetensors");
}

const std::vector<std::string>& JobTest::names() {
  static const std::vector<std::string> all = {"convert", "series", "generate", "merge", "install"};
  return all;
}

JobTest::Job JobTest::job(const std::string& name) {
  const std::string source = golden_folder() / "tiny/flux-2-klein-tiny.safetensors";
  if (name == "convert") return {name, {"convert", source, "--threads", "2", "--quant", "q8_0", "-o", "out/x.gguf"}};
  // Several files, of which each finished one is kept for the next attempt.
  if (name == "series")
    return {name, {"convert", source, "--threads", "2", "--quant", "nvfp4", "--shard-size", "0.001", "-o", "out/series"}};
  if (name == "generate")
    return {.name = name,
            .words = {"generate", "a red circle", "-s", "2", "-S", "3", "-b", "2", "--threads", "2", "--size", "64x64", "-o",
                      "out/{seq:03}.png"},
            .adds = true};
  if (name == "merge")
    return {name, {"lora", "merge", "ink.safetensors:0.5", "--into", pico("flux-2-pico.safetensors"), "-o", "out/m.safetensors"}};
  if (!hub_) {
    EXPECT_EQ(flux2({"models", "synth", "--layout", "diffusers", "--out", "toy"}).status, 0);
    std::map<std::string, FakeHub::File> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "toy"))
      if (entry.is_regular_file()) {
        const std::string path = entry.path().lexically_relative(folder_ / "toy").string();
        files[path] = {.content = read_text_file(entry.path()), .large = path.ends_with(".safetensors")};
      }
    hub_ = std::make_unique<FakeHub>(files);
  }
  return {.name = name, .words = {"models", "install", "owner/model", "--name", "toy", "--json"}, .printed = 4};
}

Start JobTest::start_of(const Job& job) const {
  Start s = start(job.words);
  if (hub_) s.environment["HF_ENDPOINT"] = hub_->endpoint();
  s.environment["HF_HOME"] = (folder_ / "hf").string();
  return s;
}

void JobTest::begin_anew() const {
  for (const char* name : {"out", "home", "hf"}) {
    fs::remove_all(folder_ / name);
    fs::create_directories(folder_ / name);
  }
}

void JobTest::learn(const Job& job) {
  begin_anew();
  const Finished done = run(start_of(job));
  ASSERT_EQ(done.status, 0) << done.err;
  expected_ = contents("out");
  ASSERT_TRUE(job.printed > 0 || !expected_.empty());
  ASSERT_EQ(problem_after_success(job, done), "");
}

std::map<std::string, std::string> JobTest::contents(const std::string& folder) const {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / folder))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder_ / folder).string()] = read_text_file(entry.path());
  return files;
}

// Pictures tell how long they took, so only what they show is compared.
bool JobTest::is_one_of_the_pictures(const std::string& content) const {
  try {
    const Image image = read_image(std::as_bytes(std::span(content)));
    return std::any_of(expected_.begin(), expected_.end(),
                       [&](const auto& e) { return read_image(std::as_bytes(std::span(e.second))) == image; });
  } catch (const Error&) {
    return false;
  }
}

// Files under final names that are not what the job makes.
std::string JobTest::wrong_results(const Job& job) const {
  for (const auto& [name, content] : contents("out")) {
    if (fs::path(name).filename().string().starts_with('.')) continue;
    const auto same = expected_.find(name);
    const bool right = job.adds ? is_one_of_the_pictures(content) : same != expected_.end() && same->second == content;
    if (!right) return fmt::format("{} is not what it should be ({} bytes)", name, content.size());
  }
  for (const auto& [path, content] : contents("hf")) {
    const std::string name = fs::path(path).filename().string();
    if (is_hex_name(name, 64) && sha256(std::as_bytes(std::span(content))) != name) return name + " does not have its hash";
    if (is_hex_name(name, 40) && git_id(content) != name) return name + " does not have its git id";
  }
  return {};
}

std::vector<std::string> JobTest::leftovers(bool resumable_too) const {
  std::vector<std::string> found;
  for (const char* folder : {"out", "home", "hf"})
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / folder)) {
      const std::string name = entry.path().filename().string();
      const bool temporary = name.ends_with("tmp") || name.ends_with(".link");
      const bool resumable = name.ends_with(".partial") || name.ends_with(".partial.json") || name.ends_with(".note") ||
                             name.ends_with(".incomplete") || name.ends_with(".part");
      if (temporary || (resumable_too && resumable)) found.push_back(fs::relative(entry.path(), folder_).string());
    }
  return found;
}

std::string JobTest::problem_after_interruption(const Job& job, bool ended_by_itself) const {
  if (std::string wrong = wrong_results(job); !wrong.empty()) return wrong;
  if (!ended_by_itself) return {};
  const auto left = leftovers(false);
  return left.empty() ? "" : fmt::format("left behind: {}", fmt::join(left, ", "));
}

std::string JobTest::problem_after_success(const Job& job, const Finished& done) const {
  if (done.status != 0) return fmt::format("status {}: {}", done.status, done.err);
  if (std::string wrong = wrong_results(job); !wrong.empty()) return wrong;
  if (const auto left = leftovers(true); !left.empty()) return fmt::format("left behind: {}", fmt::join(left, ", "));
  const auto made = contents("out");
  if (job.adds ? made.size() < expected_.size() : made.size() != expected_.size())
    return fmt::format("{} files instead of {}", made.size(), expected_.size());
  if (job.printed == 0) return {};
  const Json printed = parse_json(done.out);
  if (static_cast<int>(printed.size()) != job.printed)
    return fmt::format("{} entries instead of {}", printed.size(), job.printed);
  for (const Json& part : printed)
    for (const Json& file : part["files"])
      if (!fs::exists(file["path"].get<std::string>())) return file["path"].get<std::string>() + " is missing";
  return {};
}

}  // namespace flux2::test
