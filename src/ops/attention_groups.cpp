#include "ops/attention_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace flux2 {

namespace {

using Ids = std::vector<int32_t>;

struct RowGroup {
  Ids queries, keys;  // in ascending order
};

bool lie_together(const Ids& ids) {
  for (size_t i = 1; i < ids.size(); ++i)
    if (ids[i] != ids[0] + static_cast<int32_t>(i)) return false;
  return true;
}

Ids sorted_rows(const std::vector<Ids>& rows_of_class, const std::vector<int>& classes) {
  Ids ids;
  for (const int c : classes) {
    const Ids& rows = rows_of_class[static_cast<size_t>(c)];
    ids.insert(ids.end(), rows.begin(), rows.end());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

// The rows that see the same keys, in the order of their first query.
std::vector<RowGroup> groups_of(const RowClasses& classes, std::span<const int32_t> queries) {
  const size_t count = classes.sees.size();
  std::vector<Ids> rows(count), query_rows(count);
  for (size_t i = 0; i < classes.of_row.size(); ++i) {
    const auto c = static_cast<size_t>(classes.of_row[i]);
    require(c < count && classes.sees[c].size() == count, "attention groups: row {} has class {} of {}", i, c, count);
    rows[c].push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < queries.size(); ++i) {
    require(queries[i] >= 0 && static_cast<size_t>(queries[i]) < classes.of_row.size(), "attention groups: query {} of {} rows",
            queries[i], classes.of_row.size());
    const int c = classes.of_row[static_cast<size_t>(queries[i])];
    query_rows[static_cast<size_t>(c)].push_back(static_cast<int32_t>(i));
  }
  std::map<std::vector<int>, std::vector<int>> by_keys;  // classes that are seen → classes that see them
  for (size_t a = 0; a < count; ++a) {
    if (query_rows[a].empty()) continue;
    std::vector<int> seen;
    for (size_t b = 0; b < count; ++b)
      if (classes.sees[a][b] && !rows[b].empty()) seen.push_back(static_cast<int>(b));
    require(!seen.empty(), "attention groups: rows of class {} see nothing", a);
    by_keys[seen].push_back(static_cast<int>(a));
  }
  std::vector<RowGroup> groups;
  for (const auto& [seen, by] : by_keys) groups.push_back({sorted_rows(query_rows, by), sorted_rows(rows, seen)});
  std::sort(groups.begin(), groups.end(), [](const RowGroup& a, const RowGroup& b) { return a.queries[0] < b.queries[0]; });
  return groups;
}

// Groups of one size become one batch, which keeps a GPU busy that single small groups would not. But groups whose own queries
// lie together stay apart if the queries of the batch would not: copying their rows costs more.
std::vector<std::vector<const RowGroup*>> batches_of(const std::vector<RowGroup>& groups) {
  std::vector<std::vector<const RowGroup*>> batches;
  for (const RowGroup& group : groups) {
    const auto fits = [&](const std::vector<const RowGroup*>& batch) {
      const RowGroup& last = *batch.back();
      if (last.queries.size() != group.queries.size() || last.keys.size() != group.keys.size()) return false;
      const bool together = lie_together(last.queries) && lie_together(group.queries);
      return !together || last.queries.back() + 1 == group.queries.front();
    };
    const auto found = std::find_if(batches.begin(), batches.end(), fits);
    if (found == batches.end()) batches.push_back({&group});
    else found->push_back(&group);
  }
  return batches;
}

Tensor ids_tensor(Stream& stream, const Ids& ids) {
  return Tensor::from<int32_t>(stream, DType::I32, {static_cast<int64_t>(ids.size())}, ids);
}

RowList list_of(Stream& stream, const std::vector<const RowGroup*>& batch, Ids RowGroup::*rows) {
  Ids all;
  for (const RowGroup* group : batch) all.insert(all.end(), (group->*rows).begin(), (group->*rows).end());
  RowList list{.rows = static_cast<int64_t>((batch[0]->*rows).size())};
  if (lie_together(all)) list.first = all[0];
  else list.ids = ids_tensor(stream, all);
  return list;
}

// x [1, N, H, D] as rows [N, H · D].
Tensor head_rows(const Tensor& x) {
  const Shape shape{x.dim(1), x.dim(2) * x.dim(3)};
  return (x.can_reshape(shape) ? x : x.contiguous()).reshaped(shape);
}

// The rows of a list: [groups, rows, H, D].
Tensor listed(const Tensor& x, const RowList& list, int64_t groups) {
  const Shape shape{groups, list.rows, x.dim(2), x.dim(3)};
  if (!list.ids.defined()) return x.narrowed(1, list.first, groups * list.rows).reshaped(shape);
  const Tensor copied = Tensor::like(x, {groups * list.rows, x.dim(2) * x.dim(3)});
  x.device().kernels().embedding({list.ids, head_rows(x), copied});
  return copied.reshaped(shape);
}

}  // namespace

int64_t AttentionGroups::visible_pairs() const {
  int64_t pairs = 0;
  for (const Batch& batch : batches) pairs += batch.groups * batch.queries.rows * batch.keys.rows;
  return pairs;
}

std::string AttentionGroups::layout() const {
  std::string text = fmt::format("{}x{}", queries, keys);
  const auto place = [](const RowList& list) { return list.ids.defined() ? "ids" : std::to_string(list.first); };
  for (const Batch& b : batches)
    text += fmt::format(" {}*{}@{}:{}@{}", b.groups, b.queries.rows, place(b.queries), b.keys.rows, place(b.keys));
  return text;
}

std::vector<Tensor*> AttentionGroups::tensors() {
  std::vector<Tensor*> all;
  for (Batch& batch : batches) all.insert(all.end(), {&batch.queries.ids, &batch.keys.ids});
  all.push_back(&results);
  return all;
}

AttentionGroups group_rows(Stream& stream, const RowClasses& classes, int64_t queries) {
  const auto keys = static_cast<int64_t>(classes.of_row.size());
  require(queries > 0 && queries <= keys, "attention groups: {} queries of {} rows", queries, keys);
  Ids first(static_cast<size_t>(queries));
  std::iota(first.begin(), first.end(), 0);
  return group_rows(stream, classes, first);
}

AttentionGroups group_rows(Stream& stream, const RowClasses& classes, std::span<const int32_t> queries) {
  require(!queries.empty(), "attention groups without queries");
  const std::vector<RowGroup> groups = groups_of(classes, queries);
  AttentionGroups result{.queries = static_cast<int64_t>(queries.size()), .keys = static_cast<int64_t>(classes.of_row.size())};
  bool in_place = true;
  Ids results(queries.size());
  int32_t at = 0;
  for (const auto& batch : batches_of(groups)) {
    auto& added = result.batches.emplace_back(AttentionGroups::Batch{.groups = static_cast<int64_t>(batch.size())});
    added.queries = list_of(stream, batch, &RowGroup::queries);
    added.keys = list_of(stream, batch, &RowGroup::keys);
    in_place = in_place && !added.queries.ids.defined();
    for (const RowGroup* group : batch)
      for (const int32_t row : group->queries) results[static_cast<size_t>(row)] = at++;
  }
  if (!in_place) result.results = ids_tensor(stream, results);
  return result;
}

void grouped_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionGroups& groups, float scale,
                       const Tensor& y, bool eight_bits) {
  require(q.dim(1) == groups.queries && k.dim(1) == groups.keys, "attention groups for {} queries and {} keys: q {}, k {}",
          groups.queries, groups.keys, q.shape(), k.shape());
  const Kernels& kernels = q.device().kernels();
  const int64_t heads = q.dim(2), width = q.dim(3);
  for (int64_t b = 0; b < q.dim(0); ++b) {
    const Tensor qs = q.narrowed(0, b, 1), ks = k.narrowed(0, b, 1), vs = v.narrowed(0, b, 1), ys = y.narrowed(0, b, 1);
    Tensor collected;  // [S, H · D], in the order of the batches
    if (groups.results.defined()) collected = Tensor::like(q, {groups.queries, heads * width});
    int64_t at = 0;
    for (const auto& batch : groups.batches) {
      const int64_t n = batch.groups * batch.queries.rows;
      const Shape shape{batch.groups, batch.queries.rows, heads, width};
      const Tensor part = collected.defined() ? collected.narrowed(0, at, n).reshaped(shape)
                                              : ys.narrowed(1, batch.queries.first, n).reshaped(shape);
      kernels.attention({listed(qs, batch.queries, batch.groups), listed(ks, batch.keys, batch.groups),
                         listed(vs, batch.keys, batch.groups), part, nullptr, nullptr, scale, false, eight_bits});
      at += n;
    }
    if (collected.defined()) kernels.embedding({groups.results, collected, ys.reshaped({groups.queries, heads * width})});
  }
}

Tensor take_rows(const Tensor& x, const Tensor& ids) {
  require(x.rank() == 3 && ids.rank() == 1 && ids.dtype() == DType::I32, "rows {} of {}", ids.shape(), x.shape());
  const Tensor y = Tensor::like(x, {x.dim(0), ids.dim(0), x.dim(2)});
  for (int64_t b = 0; b < x.dim(0); ++b)
    x.device().kernels().embedding(
        {ids, x.narrowed(0, b, 1).reshaped({x.dim(1), x.dim(2)}), y.narrowed(0, b, 1).reshaped({ids.dim(0), x.dim(2)})});
  return y;
}

}  // namespace flux2
