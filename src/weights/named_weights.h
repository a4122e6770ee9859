#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weights/names.h"
#include "weights/quantised_values.h"
#include "weights/weight_source.h"

namespace flux2 {

struct NameRule;

// One part of a model under its canonical names, independent of the prefix and dialect of its files. Opening a tensor joins split
// matrices, exchanges halves, restores shapes and finds the factors of 8-bit weights.
class NamedWeights {
 public:
  // Finds the prefix and the dialect under which most tensors are recognised. If none matches, names() is empty. Throws BadFile
  // when tensors of the part are found under two prefixes.
  NamedWeights(std::shared_ptr<const WeightSource> source, ModelPart part);

  bool has(std::string_view canonical) const { return recipes_.find(canonical) != recipes_.end(); }
  Shape shape(std::string_view canonical) const;
  DType dtype(std::string_view canonical) const;
  Tensor open(std::string_view canonical, const Shard& shard = {}) const;

  // The stored rows that make up a tensor, in its order. Rows with 8-bit values need their scales (quantised_values.h).
  std::vector<StoredRows> pieces(std::string_view canonical) const;

  // Lets the system reclaim the memory of this tensor's pages; they are read again on the next access.
  void forget_pages(std::string_view canonical) const;
  void want_pages(std::string_view canonical) const;  // they will be read soon

  std::vector<std::string> names() const;  // canonical, sorted
  // Stored names that have the prefix but do not belong to the part: tensors of other models, and pieces of a split matrix whose
  // other pieces are missing.
  const std::vector<std::string>& unknown() const { return unknown_; }

  ModelPart part() const { return part_; }
  Dialect dialect() const { return dialect_; }
  const std::string& prefix() const { return prefix_; }
  const WeightSource& source() const { return *source_; }

 private:
  struct Recipe {
    const NameRule* rule = nullptr;
    std::vector<const StoredTensor*> pieces;  // in row order
  };
  const Recipe& recipe(std::string_view canonical) const;
  Shape shape_of(std::string_view canonical, const Recipe& recipe) const;
  Tensor scales_of(std::span<const StoredRows> rows, const Shape& shape, const Shard& shard) const;

  std::shared_ptr<const WeightSource> source_;
  ModelPart part_;
  Dialect dialect_ = Dialect::Canonical;
  std::string prefix_;
  std::map<std::string, Recipe, std::less<>> recipes_;
  std::vector<std::string> unknown_;
};

// Reads a canonical tensor row by row (indices of the first axis) without joining its pieces in memory. Several threads may read
// at once; the weights must outlive it.
class WeightRows {
 public:
  WeightRows(const NamedWeights& weights, const std::string& canonical);

  int64_t count() const { return count_; }
  int64_t width() const { return width_; }  // elements of a row
  const std::string& stored_as() const { return pieces_.front().rows.tensor->dtype_name; }

  // Whether the file already stores the rows in that type.
  bool stores(DType dtype) const;

  void values(int64_t row, float* out) const;  // of any stored type
  void bytes(int64_t row, DType dtype, std::byte* out) const;

 private:
  struct Piece {
    StoredRows rows;
    std::shared_ptr<const QuantisedValues> values;
  };
  std::pair<const Piece*, int64_t> find(int64_t row) const;

  std::vector<Piece> pieces_;
  std::vector<int64_t> starts_;
  int64_t count_ = 0, width_ = 1;
};

}  // namespace flux2
