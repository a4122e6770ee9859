#include "server/jobs/preview_steps.h"

#include <algorithm>
#include <cmath>

namespace flux2 {

std::vector<int> preview_steps(int count, int steps) {
  std::vector<int> chosen;
  for (int i = 1; i <= count; ++i) {
    const int step = std::max(1, static_cast<int>(std::lround(static_cast<double>(i) * steps / (count + 1))));
    if (step < steps && (chosen.empty() || chosen.back() < step)) chosen.push_back(step);
  }
  return chosen;
}

bool wants_preview(const Json& request, int step, int steps) {
  const auto preview = request.find("preview");
  if (preview == request.end() || !preview->is_object()) return true;
  if (const int every = preview->value("every", 1); every > 1 && step % every != 0 && step != steps) return false;
  const auto count = preview->find("count");
  if (count == preview->end()) return true;
  const std::vector<int> chosen = preview_steps(count->get<int>(), steps);
  return std::find(chosen.begin(), chosen.end(), step) != chosen.end();
}

}  // namespace flux2
