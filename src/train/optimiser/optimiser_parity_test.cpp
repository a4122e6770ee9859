// Trajectories of the Python optimisers, written by tests/parity/optimisers.py into the folder that FLUX2_PARITY_DATA names. Each
// file is one optimiser: its metadata say how to make ours, its tensors hold start values, gradients and the values after the
// last step.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/json.h"
#include "train/optimiser/code_books.h"
#include "train/optimiser/learning_rate.h"
#include "train/optimiser/optimiser_test.h"
#include "weights/open_tensor.h"
#include "weights/safetensors_file.h"

namespace flux2 {

namespace {

struct ParityFile {
  explicit ParityFile(const std::filesystem::path& path) : file(path) {
    for (const StoredTensor& t : file.tensors()) tensors.emplace(t.name, open_tensor(t));
  }
  const Tensor& at(const std::string& name) const { return tensors.at(name); }
  const std::string& text(const std::string& key) const { return file.metadata().at(key); }

  SafetensorsFile file;
  std::map<std::string, Tensor> tensors;
};

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double worst = x.size() == y.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    const double difference = std::abs(x[i] - y[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

std::vector<std::filesystem::path> parity_files() {
  const char* folder = std::getenv("FLUX2_PARITY_DATA");
  std::vector<std::filesystem::path> out;
  if (!folder) return out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(OptimiserParity, TrajectoriesOfThePythonOptimisers) {
  const auto files = parity_files();
  if (files.empty()) GTEST_SKIP() << "FLUX2_PARITY_DATA names no folder with trajectories";
  for (const auto& path : files) {
    const ParityFile file(path);
    const std::string name = path.stem().string();
    if (!file.file.metadata().contains("steps")) continue;  // not a trajectory
    const auto device = open_cpu({});
    const auto stream = device->open_stream();
    const int64_t tensors = std::stoll(file.text("tensors")), steps = std::stoll(file.text("steps"));
    ParameterGroup group{"all", std::stod(file.text("rate")), {}};
    for (int64_t i = 0; i < tensors; ++i) {
      const Tensor start = file.at(fmt::format("{}.start", i));
      group.tensors.push_back({std::to_string(i), Tensor::from<float>(*stream, DType::F32, start.shape(), start.to_floats())});
    }
    std::vector<std::string> args;
    for (const Json& word : parse_json(file.text("args"))) args.push_back(word.get<std::string>());
    const auto optimiser = make_optimiser(file.text("type"), args, {group});
    for (int64_t k = 0; k < steps; ++k) {
      std::vector<Tensor> gradients;
      for (const TrainedTensor& t : group.tensors)
        gradients.push_back(file.at(t.name + ".gradients").narrowed(0, k, 1).reshaped(t.value.shape()).to(*stream));
      optimiser->step(gradients, 1.0, 1.0);
    }
    const double tolerance = std::stod(file.text("tolerance"));
    double worst = 0, far = 0, elements = 0, error = 0, moved = 0, codes = 0, unequal = 0, count = 0;
    for (const TrainedTensor& t : group.tensors) {
      worst = std::max(worst, largest_difference(t.value, file.at(t.name + ".expected")));
      const std::vector<double> ours = t.value.to_doubles(), theirs = file.at(t.name + ".expected").to_doubles();
      for (size_t i = 0; i < ours.size(); ++i) far += std::abs(ours[i] - theirs[i]) > tolerance, ++elements;
      moved = std::max(moved, largest_difference(t.value, file.at(t.name + ".start")));
      if (file.tensors.contains(t.name + ".exact"))
        error = std::max(error, largest_difference(t.value, file.at(t.name + ".exact")));
    }
    for (const auto& [slot, tensor] : optimiser->slots()) {
      const auto expected = file.tensors.find("slot." + slot);
      if (expected == file.tensors.end()) continue;
      if (tensor.dtype() != DType::U8) {
        EXPECT_LE(largest_difference(tensor, expected->second), 1e-4) << name << " " << slot;
        continue;
      }
      codes = std::max(codes, largest_difference(tensor, expected->second));
      const auto our_codes = tensor.to_ints(), their_codes = expected->second.to_ints();
      for (size_t i = 0; i < our_codes.size(); ++i) unequal += our_codes[i] != their_codes[i], ++count;
    }
    double evaluation = 0;
    if (file.tensors.contains("0.evaluation")) {
      optimiser->evaluation_weights();
      for (const TrainedTensor& t : group.tensors)
        evaluation = std::max(evaluation, largest_difference(t.value, file.at(t.name + ".evaluation")));
    }
    RecordProperty(name, fmt::format("{:.2e} apart (ours {:.2e}, theirs {} from double, moved by {:.2g}), evaluation {:.2e}, "
                                     "{} of {} codes differ by at most {}",
                                     worst, error, file.text("their_error"), moved, evaluation, unequal, count, codes));
    // A second moment between the codes of zero and of the smallest value may fall to either, and the step divides by its root:
    // such an element goes its own way. One in two thousand may.
    if (count > 0) EXPECT_LE(far, 5e-4 * elements) << name << ": " << far << " of " << elements << " elements";
    else EXPECT_LE(worst, tolerance) << name;
    EXPECT_LE(evaluation, tolerance) << name;
    EXPECT_LE(unequal, 1e-4 * count) << name;
  }
}

TEST(OptimiserParity, SchedulesOfTransformers) {
  const auto files = parity_files();
  const auto found = std::find_if(files.begin(), files.end(), [](const auto& f) { return f.stem() == "schedules"; });
  if (found == files.end()) GTEST_SKIP() << "FLUX2_PARITY_DATA names no folder with schedules";
  const ParityFile file(*found);
  for (const auto& [name, factors] : file.tensors) {
    const Json json = parse_json(file.text(name));
    LearningRateOptions o{
        .total_steps = 100, .lr_scheduler_timescale = {}, .lr_scheduler_min_lr_ratio = {}, .lr_scheduler_args = {}};
    read_member(json, "name", o.lr_scheduler);
    read_member(json, "warmup", o.lr_warmup_steps);
    read_member(json, "decay", o.lr_decay_steps);
    read_member(json, "cycles", o.lr_scheduler_num_cycles);
    read_member(json, "power", o.lr_scheduler_power);
    if (json.contains("timescale")) o.lr_scheduler_timescale = json["timescale"].get<int64_t>();
    if (json.contains("least")) o.lr_scheduler_min_lr_ratio = json["least"].get<double>();
    const LearningRateSchedule schedule(o);
    const std::vector<double> expected = factors.to_doubles();
    ASSERT_EQ(expected.size(), 110u);
    for (size_t s = 0; s < expected.size(); ++s)
      EXPECT_NEAR(schedule.factor(static_cast<int64_t>(s), 1e-3), expected[s], 1e-12) << name << " step " << s;
  }
}

TEST(OptimiserParity, CodeBooksOfBitsandbytes) {
  const auto files = parity_files();
  const auto books = std::find_if(files.begin(), files.end(), [](const auto& f) { return f.stem() == "code_books"; });
  if (books == files.end()) GTEST_SKIP() << "FLUX2_PARITY_DATA names no folder with code books";
  const ParityFile file(*books);
  const auto as_vector = [](const std::array<float, 256>& book) { return std::vector<float>(book.begin(), book.end()); };
  EXPECT_EQ(file.at("signed").to_floats(), as_vector(signed_code_book()));
  EXPECT_EQ(file.at("unsigned").to_floats(), as_vector(unsigned_code_book()));
}

}  // namespace

}  // namespace flux2
