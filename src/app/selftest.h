#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/context.h"
#include "base/error.h"
#include "base/json.h"

namespace flux2 {

// One thing that was tested.
struct SelftestResult {
  std::string what;      // "cpu:avx2 exact", "file ae.safetensors"
  std::string stage;     // where the deviation is largest: "text", "latents" or "image"; empty for files
  double deviation = 0;  // root of the mean square of the difference, relative to that of the reference
  double tolerance = 0;  // 0: not measured in numbers
  double seconds = 0;
  std::string problem;  // empty: passed
  Hint remedy = {};     // what to do about it

  bool passed() const { return problem.empty(); }
};

struct SelftestReport {
  std::vector<SelftestResult> results;
  bool files_intact = true;

  bool passed() const;
};

// Runs the bundled model on every device and numeric profile of this machine and compares the results with those stored in
// selftest.json beside it. `device` restricts that to devices whose names begin so ("cpu", "cpu:avx2", "cuda:0"); "auto": all.
// `done` is called after each test.
SelftestReport selftest(const AppContext& context, const std::string& device = "auto",
                        const std::function<void(const SelftestResult&)>& done = {}, const std::function<bool()>& cancelled = {});

// For developers: what selftest.json must contain, computed with the plain kernels of the CPU.
Json selftest_reference(const AppContext& context);

}  // namespace flux2
