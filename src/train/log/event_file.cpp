#include "train/log/event_file.h"

#include <unistd.h>

#include <bit>

#include "base/error.h"
#include "base/path_exists.h"
#include "train/log/crc32c.h"
#include "train/log/output_names.h"

namespace flux2 {

namespace {

// Field numbers are those of TensorFlow's event.proto, summary.proto and tensor.proto.

void put_fixed(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, uint64_t field, WireType type) { put_varint(out, field << 3 | type); }

void put_integer(std::string& out, uint64_t field, int64_t value) {
  if (value == 0) return;  // the default is not stored
  put_key(out, field, kVarint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_record(std::string_view data) {
  std::string record;
  put_fixed(record, data.size(), 8);
  put_fixed(record, masked_crc32c(record), 4);
  record += data;
  put_fixed(record, masked_crc32c(data), 4);
  return record;
}

std::string event_at(EventTime at) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(at.wall_time), 8);
  put_integer(event, 2, at.step);
  return event;
}

std::string summary_event(EventTime at, std::string_view summary_value) {
  std::string summary, event = event_at(at);
  put_bytes(summary, 1, summary_value);
  put_bytes(event, 5, summary);
  return event_record(event);
}

}  // namespace

std::string version_event(double wall_time) {
  std::string event = event_at({.wall_time = wall_time});
  put_bytes(event, 3, "brain.Event:2");
  return event_record(event);
}

std::string scalar_event(EventTime at, std::string_view tag, float value) {
  std::string v;
  put_bytes(v, 1, tag);
  put_key(v, 2, kFixed32);
  put_fixed(v, std::bit_cast<uint32_t>(value), 4);
  return summary_event(at, v);
}

std::string image_event(EventTime at, std::string_view tag, const EventImage& image) {
  constexpr int64_t kRgb = 3;
  std::string content, v;
  put_integer(content, 1, image.height);
  put_integer(content, 2, image.width);
  put_integer(content, 3, kRgb);
  put_bytes(content, 4, {reinterpret_cast<const char*>(image.png.data()), image.png.size()});
  put_bytes(v, 1, tag);
  put_bytes(v, 4, content);
  return summary_event(at, v);
}

std::string text_event(EventTime at, std::string_view name, std::string_view text) {
  constexpr int64_t kString = 7;  // DT_STRING
  std::string extent, shape, tensor, plugin, metadata, v;
  put_integer(extent, 1, 1);
  put_bytes(shape, 2, extent);
  put_integer(tensor, 1, kString);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(v, 1, std::string(name) + "/text_summary");
  put_bytes(v, 8, tensor);
  put_bytes(v, 9, metadata);
  return summary_event(at, v);
}

EventFile::EventFile(const std::filesystem::path& path, double wall_time)
    : file_(path, AppendFile::Start::Empty), pending_(version_event(wall_time)) {
  flush();
}

void EventFile::flush() {
  file_.append(pending_);
  pending_.clear();
}

std::filesystem::path new_event_path(const std::filesystem::path& logging_dir, const std::string& prefix,
                                     const std::string& tracker, int64_t unix_time) {
  const auto folder = logging_dir / (prefix + compact_time(unix_time)) / tracker;
  for (int n = 0;; ++n) {
    auto path = folder / fmt::format("events.out.tfevents.{:010}.flux2.{}.{}", unix_time, ::getpid(), n);
    if (!path_exists(path)) return path;
  }
}

}  // namespace flux2
