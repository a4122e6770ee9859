#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace flux2 {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kTimestepBins = 10;  // of [0, 1]

// A training run as its JSON lines tell it. Lines that are not understood are skipped; of two lines about one step the later one
// counts, so that a history never shows a step twice.
struct RunHistory {
  struct Step {
    int64_t step = 0, epoch = 0;
    double time = kUnknown;  // Unix seconds
    double loss = kUnknown, average = kUnknown, grad_norm = kUnknown, it_per_s = kUnknown, tokens_per_s = kUnknown;
    double device_gib = kUnknown, host_gib = kUnknown;
    std::array<float, kTimestepBins> by_t;  // NaN: no sample of this step fell into the bin
    std::vector<std::pair<std::string, double>> lr;
  };
  struct Validation {
    int64_t step = 0;
    double loss = kUnknown;
    std::vector<std::pair<std::string, double>> by_t;  // ("0.1", loss)
  };
  struct Sample {
    int64_t step = 0, epoch = 0, index = 0;
    std::string file, prompt, seed;  // the file as the line names it
  };
  struct File {
    int64_t step = 0, epoch = 0;
    std::string file, sha256;
    uint64_t bytes = 0;
    bool removed = false;
  };
  struct Message {
    int64_t step = 0;
    std::string text;
  };

  Json start = Json::object();  // the newest start event
  int64_t starts = 0;           // 2: it was resumed once
  std::vector<Step> steps;
  std::vector<Validation> validations;
  std::vector<Sample> samples;
  std::vector<File> checkpoints, states;
  std::vector<Message> warnings;
  std::string end_reason;  // empty while it runs, or if it was killed
  std::string end_message;
  double elapsed_s = kUnknown;

  void add(const Json& event);
};

// A torn last line is skipped. Throws NotFound or BadFile (a file without a single event).
RunHistory read_history(const std::filesystem::path& jsonl);

}  // namespace flux2
