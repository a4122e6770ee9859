#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "train/log/append_file.h"

namespace flux2 {

// One value of a TensorBoard log and when it was measured.
struct EventTime {
  double wall_time = 0;  // Unix seconds
  int64_t step = 0;
};

struct EventImage {
  int64_t width = 0, height = 0;
  std::span<const std::byte> png;
};

// The bytes of one record: length, its checksum, a protobuf Event, its checksum.
std::string version_event(double wall_time);  // the first record of a file
std::string scalar_event(EventTime at, std::string_view tag, float value);
std::string image_event(EventTime at, std::string_view tag, const EventImage& image);
std::string text_event(EventTime at, std::string_view name, std::string_view text);

// A TensorBoard file. Records are collected and written by flush().
class EventFile {
 public:
  EventFile(const std::filesystem::path& path, double wall_time);

  const std::filesystem::path& path() const { return file_.path(); }
  void add(std::string_view event) { pending_ += event; }
  void flush();  // throws CannotWrite; what could not be written stays and is tried again

 private:
  AppendFile file_;
  std::string pending_;
};

// LOGGING_DIR/<prefix><YYYYmmddHHMMSS>/<tracker>/events.out.tfevents.<seconds>.flux2.<pid>.<n>, where n is the first number whose
// name is free. The host's name is left out on purpose: logs are published.
std::filesystem::path new_event_path(const std::filesystem::path& logging_dir, const std::string& prefix,
                                     const std::string& tracker, int64_t unix_time);

}  // namespace flux2
