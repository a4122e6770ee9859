#include "weights/gguf_writer.h"

#include <cstring>
#include <set>

#include "base/atomic_file.h"
#include "base/error.h"
#include "weights/gguf_format.h"

namespace flux2 {

namespace {

template <class T>
void put(std::string& out, T v) {
  char bytes[sizeof v];
  std::memcpy(bytes, &v, sizeof v);
  out.append(bytes, sizeof v);
}

void put(std::string& out, GgufValueType type) { put(out, static_cast<uint32_t>(type)); }

void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}

struct PutValue {
  std::string& out;

  void operator()(const std::string& v) const {
    put(out, GgufValueType::String);
    put_text(out, v);
  }
  void operator()(uint32_t v) const {
    put(out, GgufValueType::U32);
    put(out, v);
  }
  void operator()(float v) const {
    put(out, GgufValueType::F32);
    put(out, v);
  }
  void operator()(bool v) const {
    put(out, GgufValueType::Bool);
    put(out, static_cast<uint8_t>(v));
  }
  void operator()(const std::vector<std::string>& v) const {
    put_array(GgufValueType::String, v.size());
    for (const std::string& s : v) put_text(out, s);
  }
  void operator()(const std::vector<int32_t>& v) const {
    put_array(GgufValueType::I32, v.size());
    for (int32_t n : v) put(out, n);
  }

 private:
  void put_array(GgufValueType element, size_t count) const {
    put(out, GgufValueType::Array);
    put(out, element);
    put(out, static_cast<uint64_t>(count));
  }
};

void put_entry(std::string& out, const GgufDeclared& t, uint64_t offset) {
  const GgmlType* type = ggml_type_of(t.dtype);
  check(type != nullptr, "tensor {}: GGUF files cannot hold {}", t.name, name_of(t.dtype));
  check(t.shape.rank() <= 4, "tensor {} of shape {}: GGUF files hold at most 4 axes", t.name, t.shape);
  check(t.shape.numel() > 0, "tensor {} of shape {}: GGUF files hold no empty tensors", t.name, t.shape);
  put_text(out, t.name);
  put(out, static_cast<uint32_t>(t.shape.rank()));
  for (int axis = t.shape.rank() - 1; axis >= 0; --axis) put(out, static_cast<uint64_t>(t.shape[axis]));
  put(out, type->id);
  put(out, offset);
}

}  // namespace

uint64_t gguf_padding(uint64_t tensor_bytes) { return (kGgufAlignment - tensor_bytes % kGgufAlignment) % kGgufAlignment; }

std::string gguf_header(const std::vector<GgufPair>& pairs, const std::vector<GgufDeclared>& tensors) {
  std::string out(kGgufMagic);
  put(out, kGgufVersion);
  put(out, static_cast<uint64_t>(tensors.size()));
  put(out, static_cast<uint64_t>(pairs.size()));
  for (const GgufPair& pair : pairs) {
    put_text(out, pair.key);
    std::visit(PutValue{out}, pair.value);
  }
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const GgufDeclared& t : tensors) {
    require(names.insert(t.name).second, "tensor {} is to be written twice", t.name);
    put_entry(out, t, offset);
    const auto bytes = static_cast<uint64_t>(bytes_for(t.dtype, t.shape.numel()));
    offset += bytes + gguf_padding(bytes);
  }
  out.resize(out.size() + gguf_padding(out.size()), '\0');
  return out;
}

void save_gguf(const std::filesystem::path& path, const std::vector<GgufPair>& pairs,
               const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<GgufDeclared> declared;
  for (const auto& [name, tensor] : tensors) declared.push_back({name, tensor.dtype(), tensor.shape()});
  AtomicFile file(path);
  const std::string header = gguf_header(pairs, declared);
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = static_cast<uint64_t>(tensor.bytes());
    file.write(tensor.raw(), bytes);
    const std::vector<std::byte> zeros(gguf_padding(bytes));
    file.write(zeros);
  }
  file.commit();
}

}  // namespace flux2
