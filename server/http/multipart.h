#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace flux2 {

struct FormLimits {
  size_t parts = 64;
  size_t headers = 64;                  // of one part
  size_t header_bytes = 16 << 10;       // of one part
  uint64_t part_in_memory = 256 << 10;  // a larger part goes to a file
};

// The boundary of "multipart/form-data; boundary=…"; nothing for other types. Throws InvalidArgument if it is missing or not
// allowed.
std::optional<std::string> form_boundary(std::string_view content_type);

// Reads a multipart form whose bytes arrive in pieces of any size. Memory is bounded by the limits, not by the form. Throws
// InvalidArgument for a damaged form or one beyond the limits, CannotWrite if a part cannot be stored; it is of no use
// afterwards. Files of parts that nobody took are deleted.
class FormReader {
 public:
  FormReader(std::string_view boundary, const FormLimits& limits, std::filesystem::path folder);
  FormReader(const FormReader&) = delete;
  FormReader& operator=(const FormReader&) = delete;
  ~FormReader();

  void add(std::string_view bytes);
  std::vector<FormPart> finish();  // throws if the end of the form has not arrived

 private:
  enum class State { Preamble, Boundary, Head, Content, End };

  bool step();  // false: more bytes are needed
  bool read_boundary();
  bool read_head();
  bool read_content();
  void begin_part(std::string_view head);
  void store(std::string_view bytes);
  void move_to_file(FormPart& part);
  void close_file();

  const std::string delimiter_;  // "\r\n--" and the boundary
  const FormLimits limits_;
  const std::filesystem::path folder_;
  State state_ = State::Preamble;
  std::string pending_;
  std::vector<FormPart> parts_;
  int fd_ = -1;  // of the part that is being read
};

// Deletes the files of these parts that are still where the reader put them.
void remove_part_files(const std::vector<FormPart>& parts);

// Deletes files that killed processes left, when they are older than an hour.
void remove_stale_uploads(const std::filesystem::path& folder);

}  // namespace flux2
