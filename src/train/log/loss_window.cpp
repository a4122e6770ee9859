#include "train/log/loss_window.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace flux2 {

void LossWindow::record(int64_t micro_in_epoch, double loss) {
  require(micro_in_epoch >= 0, "a micro-step before the epoch");
  const auto place = static_cast<size_t>(micro_in_epoch);
  if (place >= values_.size()) values_.resize(place + 1, std::numeric_limits<double>::quiet_NaN());
  if (std::isfinite(loss)) values_[place] = loss;
}

double LossWindow::average() const {
  double sum = 0;
  int64_t count = 0;
  for (const double value : values_)
    if (std::isfinite(value)) {
      sum += value;
      ++count;
    }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

}  // namespace flux2
