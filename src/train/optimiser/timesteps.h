#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

// Which noise levels a run trains on. The names are those of the options; `method` is timestep_sampling.
struct TimestepOptions {
  std::string method = "sigma";
  double discrete_flow_shift = 1.0;
  double sigmoid_scale = 1.0;
  std::string weighting_scheme = "none";
  double logit_mean = 0.0, logit_std = 1.0;
  double mode_scale = 1.29;
  std::optional<int> min_timestep, max_timestep;  // 0 … 1000
  bool preserve_distribution_shape = false;
  int num_timestep_buckets = 0;  // 0: not stratified; else 2 or more
  double timestep_offset = 0.0;  // added to the time that the model sees, except with "sigma"
};

struct Timestep {
  float t = 0;           // the share of noise in the input: 1 is noise alone
  float model_time = 0;  // the time that the model is given
  double weight = 1;     // of the sample's loss
};

const std::vector<std::string>& timestep_methods();
const std::vector<std::string>& weighting_schemes();

// Draws timesteps. A timestep is a function of the seed, the index of the sample and the size of its latents, so it depends
// neither on threads nor on ranks nor on whether a run was resumed.
class TimestepSampler {
 public:
  explicit TimestepSampler(const TimestepOptions& options);  // checks them

  // h, w: extents of the packed latents. `stratum` replaces the uniform number that the sample would draw (StratifiedTimesteps).
  Timestep sample(uint64_t seed, uint64_t sample_index, int64_t h, int64_t w, std::optional<double> stratum = {}) const;

  double weight(double model_time) const;  // of the loss at that time
  const TimestepOptions& options() const { return options_; }

 private:
  // The draws of one attempt: a uniform and a normal number, which become one where a stratum is given; and one more uniform.
  struct Draws {
    double uniform = 0, normal = 0, choice = 0;
  };
  Draws draw(uint64_t seed, uint64_t sample_index, uint32_t attempt, std::optional<double> stratum) const;
  double raw(const Draws& draws, int64_t h, int64_t w) const;
  double sigma(const Draws& draws) const;

  TimestepOptions options_;
  double low_ = 0, high_ = 1000;
};

// Uniform numbers in (0, 1) for one epoch of one dataset, of which each of `buckets` equal intervals holds an equal share (give
// or take one): a function of the seed, the epoch, the dataset and the position.
class StratifiedTimesteps {
 public:
  StratifiedTimesteps(uint64_t seed, uint64_t epoch, uint32_t dataset, int64_t count, int buckets);
  double at(int64_t position) const { return values_.at(static_cast<size_t>(position)); }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

// What show_timesteps prints: a line for each 25 timesteps with the share of samples and the loss weight.
std::vector<std::string> timestep_histogram(const TimestepSampler& sampler, uint64_t seed, int64_t h, int64_t w,
                                            int64_t samples = 100000);

// μ of the shift methods that look at the number of latent tokens.
double flux2_shift_mu(int64_t tokens);

double inverse_normal(double u);  // the u-quantile of N(0, 1)

}  // namespace flux2
