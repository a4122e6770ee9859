#pragma once

#include <string>
#include <vector>

namespace flux2 {

enum class OptimiserKind {
  AdamW,
  AdamW8bit,
  Lion,
  Lion8bit,
  Adafactor,
  Prodigy,
  ScheduleFree,
  AdEmaMix,
  AdEmaMix8bit,
  Came,
  Sgd
};

// The optimiser that a name means: any case, with or without the module path of the Python class. An empty name is AdamW. Throws
// InvalidArgument with the nearest name for anything else.
OptimiserKind optimiser_named(const std::string& type);

// The names without module paths.
const std::vector<std::string>& optimiser_names();

// What metadata call the optimiser: "module.Class(k=v,…)", with the path of the Python class that it follows.
std::string optimiser_text(const std::string& type, const std::vector<std::string>& args);

// Whether the optimiser chooses its learning rate itself (Adafactor with relative_step), and whether it needs a schedule.
bool chooses_its_rate(const std::string& type, const std::vector<std::string>& args);
bool takes_schedule(const std::string& type);

// Sentences to log before training.
std::vector<std::string> optimiser_warnings(const std::string& type, const std::vector<std::string>& args,
                                            const std::string& lr_scheduler, double max_grad_norm);

}  // namespace flux2
