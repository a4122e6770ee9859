#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "tensor/tensor.h"

namespace flux2 {

// Writes a safetensors file of any size in constant memory. The tensors are declared first; their data follows in the order of
// tensors(), in pieces of any size. The file gets its name on commit().
class SafetensorsWriter {
 public:
  struct Declared {
    std::string name;
    DType dtype = DType::F32;  // a plain type: the format knows no blocks
    Shape shape;
  };

  SafetensorsWriter(const std::filesystem::path& path, std::vector<Declared> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  const std::vector<Declared>& tensors() const { return tensors_; }

  // The next bytes of tensor `name`, which must be the first one not yet complete.
  void write(std::string_view name, std::span<const std::byte> bytes);
  void commit();      // replaces an existing file
  bool commit_new();  // replaces nothing: returns false if the name is taken

 private:
  void skip_complete();
  void require_complete() const;

  std::vector<Declared> tensors_;
  AtomicFile file_;
  size_t current_ = 0;    // the tensor being written
  uint64_t written_ = 0;  // bytes of it
};

// In the order of the data: wide elements first, so that each tensor is aligned to its own, then by type and name.
std::vector<SafetensorsWriter::Declared> safetensors_order(std::vector<SafetensorsWriter::Declared> tensors);

// The bytes of a safetensors file in front of its data, for tensors in that order.
std::string safetensors_header(const std::vector<SafetensorsWriter::Declared>& ordered,
                               const std::map<std::string, std::string>& metadata = {});

// Writes tensors, on any device and with any strides, into one file.
void save_tensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// The same, but replaces nothing: returns false if the name is taken.
bool save_new_tensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace flux2
