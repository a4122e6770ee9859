#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// The tokens of a vocabulary by string and by id. The strings lie in one block, both tables are flat: filling a
// vocabulary of 150,000 tokens costs no allocation per token.
class TokenTable {
 public:
  // Ids lie in [0, kMaxIds): several times the largest vocabulary known, and small enough for a dense table.
  static constexpr int64_t kMaxIds = 1 << 20;

  // Throws BadFile when the id is out of range, or given to another token already, or the token has another id.
  void add(std::string_view token, int64_t id);

  std::optional<int32_t> find(std::string_view token) const;
  std::string_view operator[](int32_t id) const;                            // empty where no token has this id
  int32_t id_limit() const { return static_cast<int32_t>(by_id_.size()); }  // one more than the highest id

 private:
  struct Text {
    uint32_t begin = 0, size = 0;  // size 0: no token
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };

  size_t slot_of(std::string_view token, uint32_t hash) const;  // where it is, or the free slot where it belongs
  void grow();

  std::string bytes_;
  std::vector<Text> by_id_;
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

struct Merge {
  int32_t left, right;  // ids of the neighbours; left is -1 in a free slot of the table
  uint32_t rank;        // lower ranks merge first
  int32_t merged;
};

class MergeTable {
 public:
  explicit MergeTable(size_t expected = 0);
  void put(const Merge& merge);                          // at most `expected` different pairs; the last of equal pairs stays
  const Merge* find(int32_t left, int32_t right) const;  // nullptr where the pair does not merge

 private:
  size_t slot_of(int32_t left, int32_t right) const;

  std::vector<Merge> slots_;
};

}  // namespace flux2
