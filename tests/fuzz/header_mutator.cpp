#include "tests/fuzz/header_mutator.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace flux2_fuzz {

namespace {

using flux2::Json;

constexpr size_t kLengthBytes = 8;
constexpr const char* kTypes[] = {"F32", "BF16", "F16", "I8", "U8", "F8_E4M3", "F64", "BOOL", "I64", "F4", "?"};

uint64_t number_of(const Json& json) { return json.is_number_unsigned() ? json.get<uint64_t>() : 0; }

void change_list(Json& list, std::mt19937& random) {
  if (!list.is_array()) return;
  if (list.empty() || random() % 8 == 0) {
    list.push_back(odd_number(1, random));
  } else if (random() % 8 == 0) {
    list.erase(random() % list.size());
  } else {
    Json& at = list[random() % list.size()];
    at = odd_number(number_of(at), random);
  }
}

void change_tensor(Json& header, const std::string& name, std::mt19937& random) {
  Json& tensor = header[name];
  if (!tensor.is_object()) return;
  switch (random() % 8) {
    case 0: tensor["dtype"] = kTypes[random() % std::size(kTypes)]; break;
    case 1: {
      const std::string copy = name + "x";
      header[copy] = tensor;
      break;
    }
    case 2: header.erase(name); break;
    case 3: tensor.erase("shape"); break;
    case 4:
    case 5: change_list(tensor["shape"], random); break;
    default: change_list(tensor["data_offsets"], random); break;
  }
}

}  // namespace

size_t mutate_safetensors(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (size < kLengthBytes) return 0;
  uint64_t length = 0;
  std::memcpy(&length, data, kLengthBytes);
  if (length > size - kLengthBytes) return 0;
  auto header = flux2::try_parse_json({reinterpret_cast<const char*>(data) + kLengthBytes, length});
  if (!header || !header->is_object() || header->empty()) return 0;
  std::mt19937 random(seed);
  auto at = header->begin();
  std::advance(at, static_cast<std::ptrdiff_t>(random() % header->size()));
  const std::string name = at.key();
  if (name == "__metadata__" && at->is_object()) (*at)["k" + std::to_string(random() % 8)] = std::string(random() % 64, 'v');
  else change_tensor(*header, name, random);

  const std::string text = header->dump(-1, ' ', false, Json::error_handler_t::replace);
  const size_t rest = size - kLengthBytes - length;
  if (kLengthBytes + text.size() + rest > max_size) return 0;
  std::memmove(data + kLengthBytes + text.size(), data + kLengthBytes + length, rest);
  std::memcpy(data + kLengthBytes, text.data(), text.size());
  length = text.size();
  std::memcpy(data, &length, kLengthBytes);
  return kLengthBytes + text.size() + rest;
}

namespace {

// Walks a GGUF header and notes where its numbers are.
class GgufNumbers {
 public:
  struct Place {
    size_t at, bytes;
  };
  std::vector<Place> places;

  GgufNumbers(const uint8_t* data, size_t size) : data_(data), size_(size) {
    if (size < 24) return;
    at_ = 4;
    number(4);
    const uint64_t tensors = number(8), keys = number(8);
    for (uint64_t i = 0; i < keys && sound_; ++i) {
      text();
      value(number(4));
    }
    for (uint64_t i = 0; i < tensors && sound_; ++i) {
      text();
      const uint64_t axes = number(4);
      for (uint64_t k = 0; k < axes && k < 8 && sound_; ++k) number(8);
      number(4);
      number(8);
    }
  }

 private:
  uint64_t number(size_t bytes) {
    if (!sound_ || bytes > size_ - at_) {
      sound_ = false;
      return 0;
    }
    uint64_t value = 0;
    std::memcpy(&value, data_ + at_, bytes);
    places.push_back({at_, bytes});
    at_ += bytes;
    return value;
  }
  void skip(uint64_t bytes) {
    if (bytes > size_ - at_) sound_ = false;
    else at_ += bytes;
  }
  void text() { skip(number(8)); }
  void value(uint64_t type) {
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type >= std::size(kSizes)) sound_ = false;
    else if (type == 8) text();
    else if (type != 9) number(kSizes[type]);
    else {
      const uint64_t element = number(4), count = number(8);
      for (uint64_t i = 0; i < count && sound_; ++i) {
        if (element == 9) sound_ = false;
        else value(element);
      }
    }
  }

  const uint8_t* data_;
  size_t size_, at_ = 0;
  bool sound_ = true;
};

}  // namespace

size_t mutate_gguf(uint8_t* data, size_t size, unsigned seed) {
  const GgufNumbers found(data, size);
  if (found.places.empty()) return 0;
  std::mt19937 random(seed);
  // The numbers of tensors come last and matter most.
  const size_t count = found.places.size();
  const size_t index = random() % 2 ? random() % count : count - 1 - random() % std::min<size_t>(count, 16);
  const auto [at, bytes] = found.places[index];
  uint64_t value = 0;
  std::memcpy(&value, data + at, bytes);
  value = odd_number(value, random);
  std::memcpy(data + at, &value, bytes);
  return size;
}

}  // namespace flux2_fuzz
