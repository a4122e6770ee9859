#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"
#include "image/mask_shapes.h"
#include "net/http.h"

namespace flux2 {

struct MaskFound {
  Image mask;  // grey, 255 is the object, as large as the image
  double score = 0;
  std::string label = {};
  std::array<double, 4> box = {};  // left, top, right, bottom in pixels
};

constexpr const char* kMaskService = "http://127.0.0.1:8001";  // where it is looked for
constexpr double kMaskConfidence = 0.5;

struct MaskRules {
  double connect_s = 2;
  double answer_s = 60;     // for the whole answer
  int longest_side = 2048;  // larger images are sent smaller, and their masks scaled back
  size_t answer_bytes = 256 << 20;
  int at_a_time = 4;  // calls wait on threads that others need
  size_t most_points = 1000;
};

// Why a mask service gave no mask.
class MaskServiceError : public Error {
 public:
  enum Why { Unavailable, Failed, FoundNothing, Busy };
  MaskServiceError(Why why, const std::string& message, const std::string& hint = {});
  Why why() const { return why_; }

 private:
  Why why_;
};

// A client of a segmentation service: another process that finds objects in images by points or words. Throws MaskServiceError,
// and InvalidArgument for points outside the image. Thread-safe.
class MaskService {
 public:
  MaskService(std::string url, HttpSettings settings, MaskRules rules = {}, ImageLimits limits = {});

  using Cancelled = std::function<bool()>;

  Json health() const;  // {"online", "latency_ms", "status", …}; never throws

  // `box`: centre, width and height as parts of the image. With `several`, up to three masks, best first.
  std::vector<MaskFound> by_points(const Image& image, const std::vector<MaskPoint>& points,
                                   const std::optional<std::array<double, 4>>& box, bool several,
                                   const Cancelled& cancelled = {}) const;
  Image by_text(const Image& image, const std::string& text, double confidence, const Cancelled& cancelled = {}) const;
  std::vector<MaskFound> detect(const Image& image, const std::string& text, double confidence,
                                const Cancelled& cancelled = {}) const;  // may find nothing

 private:
  struct Sent;
  HttpAnswer ask(const char* route, const Sent& sent, std::vector<std::pair<std::string, std::string>> fields,
                 const Cancelled& cancelled) const;
  Image mask_in(std::span<const std::byte> bytes, const Image& image) const;

  std::string url_;
  MaskRules rules_;
  ImageLimits limits_;
  HttpClient client_;
  mutable std::atomic<int> running_ = 0;
};

bool is_empty_mask(const Image& mask);

}  // namespace flux2
