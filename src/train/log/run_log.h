#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "train/log/loss_window.h"
#include "train/log/run_history.h"

// What a training run says while it runs. The loop talks to one RunLog; it writes TensorBoard files and JSON lines, keeps the
// history and tells the console or the server.
namespace flux2 {

struct RunStart {
  std::string model;  // "flux_2_klein_4b"
  int64_t modules = 0, parameters = 0;
  int64_t items = 0, batches_per_epoch = 0, epochs = 0, steps = 0;
  std::string program;  // "flux2 1.0.0"
  std::string device;   // "NVIDIA H200"; may be empty
  struct Plan {
    double device_gib = 0, host_gib = 0, s_per_step = 0;
  };
  std::optional<Plan> plan;
  Json options = Json::object();  // every resolved option; secrets and paths are removed before anything is written
};

// One optimiser step. What is not known stays empty and is not written.
struct RunStep {
  int64_t step = 0;            // from 1
  int64_t epoch = 0;           // from 1
  int64_t micro_in_epoch = 0;  // place in the epoch, from 0, of the first micro-step of this step
  std::vector<double> losses;  // of the micro-steps; the loss of the step is their mean
  struct Sample {
    double t = 0, loss = 0;
  };
  std::vector<Sample> samples;                       // each sample of the step: for loss by timestep
  std::vector<std::pair<std::string, double>> lr;    // "unet", "unet plus"
  std::vector<std::pair<std::string, double>> d_lr;  // Prodigy: d·lr of each group
  std::optional<double> grad_norm;                   // before clipping
  double seconds = 0;                                // spent on this step, without samples, validation and saving
  int64_t tokens = 0;                                // that the transformer saw in it
  std::optional<double> device_gib, host_gib;
  std::optional<double> ema_decay;
  struct NormLimit {
    int64_t keys_scaled = 0;
    double average = 0, maximum = 0;
  };
  std::optional<NormLimit> norm_limit;
  bool skipped = false;  // the gradient was not finite, so no weight changed
};

struct RunEpoch {
  int64_t step = 0, epoch = 0;  // that has ended
};

struct RunValidation {
  int64_t step = 0;
  double loss = 0;
  std::vector<std::pair<double, double>> by_t;  // (t, loss)
};

struct RunSample {
  int64_t step = 0, epoch = 0;
  int64_t index = 0;  // of the prompt
  std::filesystem::path file;
  std::string prompt;
  uint64_t seed = 0;
};

struct RunCheckpoint {
  int64_t step = 0, epoch = 0;
  std::filesystem::path file;
  std::string sha256;
  uint64_t bytes = 0;
};

struct RunState {
  int64_t step = 0, epoch = 0;
  std::filesystem::path folder;
};

struct RunRemoval {  // by retention
  int64_t step = 0;
  std::filesystem::path file;
};

struct RunWarning {
  int64_t step = 0;
  std::string text;
};

enum class RunEndReason { Done, Interrupted, Nan, Time, Error };
const char* name_of(RunEndReason reason);  // "done", …

struct RunEnd {
  RunEndReason reason = RunEndReason::Done;
  int64_t step = 0;
  std::string message;  // of an error
};

struct RunLogOptions {
  std::filesystem::path output_dir;
  std::string output_name;            // JSON lines go to <output_dir>/<output_name>.jsonl
  std::filesystem::path jsonl;        // and to this file, if not empty
  std::filesystem::path logging_dir;  // TensorBoard files go below it; empty: none are written
  std::string log_prefix;
  std::string tracker_name = "network_train";  // full fine-tuning: "fine-tuning"
  bool log_config = false;                     // the options as a text summary
  std::optional<int64_t> resumed_step;         // lines about later steps are dropped; without it both files start empty
  LossWindow losses;                           // of the state
  double elapsed_s = 0;                        // of the state: time spent before
  bool report = true;                          // end() writes <output_dir>/report.html

  std::function<void(const Json& event)> on_event;  // each object, as in the JSON lines
  std::function<double()> now;                      // Unix seconds; the system's clock if empty
  Log log;                                          // receives a warning when a log cannot be written; training goes on
};

// Not thread-safe: one thread talks to it.
class RunLog {
 public:
  explicit RunLog(RunLogOptions options);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void start(const RunStart& start);
  void step(const RunStep& step);
  void epoch(const RunEpoch& epoch);
  void validation(const RunValidation& validation);
  void sample(const RunSample& sample);  // the image is read from its file
  void checkpoint(const RunCheckpoint& checkpoint);
  void state(const RunState& state);
  void removed(const RunRemoval& removal);
  void warning(const RunWarning& warning);  // also goes to the Log
  void end(const RunEnd& end);

  const LossWindow& losses() const;  // for the state
  double elapsed_s() const;          // of the whole run, also before it was resumed
  const RunHistory& history() const;
  std::filesystem::path jsonl_path() const;
  std::filesystem::path report_path() const;
  std::filesystem::path event_file_path() const;  // empty if no TensorBoard file is written

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The options that may be shown to others: without tokens, keys and paths.
Json options_without_secrets(const Json& options);

}  // namespace flux2
