#include "text/bpe_tables.h"

#include <bit>
#include <functional>

#include "base/error.h"

namespace flux2 {

namespace {

uint32_t hash_of(std::string_view text) { return static_cast<uint32_t>(std::hash<std::string_view>{}(text)); }

}  // namespace

size_t TokenTable::slot_of(std::string_view token, uint32_t hash) const {
  size_t i = hash & (slots_.size() - 1);
  while (slots_[i].id >= 0 && (slots_[i].hash != hash || (*this)[slots_[i].id] != token)) {
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

void TokenTable::grow() {
  std::vector<Slot> old(slots_.empty() ? 1024 : 2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id >= 0) slots_[slot_of((*this)[slot.id], slot.hash)] = slot;
  }
}

void TokenTable::add(std::string_view token, int64_t id) {
  if (token.empty()) fail(ErrorCode::BadFile, "the token with id {} is empty", id);
  if (id < 0 || id >= kMaxIds) {
    fail(ErrorCode::BadFile, "token \"{}\" has id {}, which is not in 0…{}", token, id, kMaxIds - 1);
  }
  if (2 * count_ >= slots_.size()) grow();
  const uint32_t hash = hash_of(token);
  Slot& slot = slots_[slot_of(token, hash)];
  if (slot.id == id) return;
  if (slot.id >= 0) fail(ErrorCode::BadFile, "token \"{}\" has two ids, {} and {}", token, slot.id, id);
  if (static_cast<size_t>(id) >= by_id_.size()) by_id_.resize(id + 1);
  Text& text = by_id_[id];
  if (text.size != 0) {
    fail(ErrorCode::BadFile, "tokens \"{}\" and \"{}\" have the same id {}", (*this)[id], token, id);
  }
  text = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(token.size())};
  bytes_ += token;
  slot = {hash, static_cast<int32_t>(id)};
  ++count_;
}

std::optional<int32_t> TokenTable::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[slot_of(token, hash_of(token))];
  if (slot.id < 0) return std::nullopt;
  return slot.id;
}

std::string_view TokenTable::operator[](int32_t id) const {
  if (id < 0 || id >= id_limit()) return {};
  return std::string_view(bytes_).substr(by_id_[id].begin, by_id_[id].size);
}

MergeTable::MergeTable(size_t expected) : slots_(std::bit_ceil(expected + expected / 2 + 1), Merge{-1, -1, 0, -1}) {}

size_t MergeTable::slot_of(int32_t left, int32_t right) const {
  const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  size_t i = (key * 0x9E3779B97F4A7C15u >> 32) & (slots_.size() - 1);
  while (slots_[i].left >= 0 && (slots_[i].left != left || slots_[i].right != right)) i = (i + 1) & (slots_.size() - 1);
  return i;
}

void MergeTable::put(const Merge& merge) { slots_[slot_of(merge.left, merge.right)] = merge; }

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Merge& merge = slots_[slot_of(left, right)];
  return merge.left >= 0 ? &merge : nullptr;
}

}  // namespace flux2
