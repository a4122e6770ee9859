#include "weights/torch_pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "base/error.h"
#include "base/text.h"
#include "weights/stored_zip.h"

namespace flux2 {

namespace {

constexpr size_t kLargestPickle = size_t{1} << 20;  // that of an upscaler has 100 KB
constexpr size_t kMostAxes = 8;
constexpr uint64_t kLatestProtocol = 5;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::BadFile, fmt::format("the pickle is refused: {}", what),
              "only files with nothing but tensors are read; if you trust the file, convert it to safetensors with PyTorch");
}

// Values refer to each other by number: a pickle may contain cycles, and the same value many times.
using Ref = uint32_t;

enum class Function { OrderedDict, RebuildTensor, RebuildParameter };

struct None {};
struct Tuple {
  std::vector<Ref> items;
};
struct List {
  std::vector<Ref> items;
};
struct Dict {
  std::vector<std::pair<Ref, Ref>> items;
};
struct Storage {
  DType dtype = DType::F32;
  std::span<const std::byte> bytes;
};
using Value = std::variant<None, bool, int64_t, std::string, Tuple, List, Dict, Function, DType, Storage, PickledTensor>;

// The only names that a pickle may call. A DType is the class of a storage.
std::optional<Value> known_global(std::string_view module, std::string_view name) {
  if (module == "collections" && name == "OrderedDict") return Function::OrderedDict;
  if (module == "torch._utils" && name == "_rebuild_tensor_v2") return Function::RebuildTensor;
  if (module == "torch._utils" && name == "_rebuild_parameter") return Function::RebuildParameter;
  if (module != "torch") return std::nullopt;
  if (name == "FloatStorage") return DType::F32;
  if (name == "HalfStorage") return DType::F16;
  if (name == "BFloat16Storage") return DType::BF16;
  if (name == "DoubleStorage") return DType::F64;
  if (name == "LongStorage") return DType::I64;
  return std::nullopt;
}

using StorageFiles = std::map<std::string, std::span<const std::byte>>;

class Unpickler {
 public:
  Unpickler(std::span<const std::byte> program, const StorageFiles& storages) : program_(program), storages_(storages) {}

  // Runs to STOP and returns the tensors of the dictionary.
  std::vector<PickledTensor> tensors() {
    while (step()) {}
    const Ref root = pop();
    const Dict* dict = as<Dict>(root);
    if (!dict) refuse("it does not contain a dictionary of tensors");
    for (const char* key : {"params_ema", "params"})
      for (const auto& [name, value] : dict->items)
        if (const Dict* inner = as<Dict>(value); inner && as<std::string>(name) && *as<std::string>(name) == key)
          return tensors_in(*inner);
    return tensors_in(*dict);
  }

 private:
  // ---- bytes ----
  uint64_t number(int size) {
    if (program_.size() - at_ < static_cast<size_t>(size)) refuse("it ends too early");
    uint64_t value = 0;
    for (int i = 0; i < size; ++i) value |= std::to_integer<uint64_t>(program_[at_++]) << (8 * i);
    return value;
  }
  std::string text(uint64_t size) {
    if (program_.size() - at_ < size) refuse("a text ends too early");
    std::string result(reinterpret_cast<const char*>(program_.data() + at_), static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return result;
  }
  std::string line() {
    const auto rest = program_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) refuse("a name ends too early");
    std::string result = text(static_cast<uint64_t>(end - rest.begin()));
    ++at_;
    return result;
  }

  // ---- the stack ----
  Ref add(Value value) {
    values_.push_back(std::move(value));
    return static_cast<Ref>(values_.size() - 1);
  }
  void push(Value value) { stack_.push_back(add(std::move(value))); }
  Ref pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("it takes more values than it has");
    const Ref top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Ref top() {
    const Ref value = pop();
    stack_.push_back(value);
    return value;
  }
  std::vector<Ref> pop_to_mark() {
    if (marks_.empty()) refuse("it takes a mark that is not there");
    const auto first = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<Ref> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_tuple(size_t count) {
    std::vector<Ref> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push(Tuple{std::move(items)});
  }
  template <class T>
  T* as(Ref ref) {
    return std::get_if<T>(&values_[ref]);
  }
  template <class T>
  T& need(Ref ref, const char* what) {
    if (T* value = as<T>(ref)) return *value;
    refuse(fmt::format("{} is missing", what));
  }

  // ---- instructions ----
  bool step() {
    const auto code = static_cast<unsigned>(number(1));
    switch (code) {
      case 0x80:
        if (const uint64_t protocol = number(1); protocol > kLatestProtocol) refuse(fmt::format("protocol {}", protocol));
        break;
      case '.': return false;
      case '(': marks_.push_back(stack_.size()); break;
      case '}': push(Dict{}); break;
      case ']': push(List{}); break;
      case ')': push(Tuple{}); break;
      case 't': push(Tuple{pop_to_mark()}); break;
      case 0x85: push_tuple(1); break;
      case 0x86: push_tuple(2); break;
      case 0x87: push_tuple(3); break;
      case 'X': push(text(number(4))); break;
      case 0x8c: push(text(number(1))); break;
      case 0x8d: push(text(number(8))); break;
      case 'J': push(int64_t{static_cast<int32_t>(static_cast<uint32_t>(number(4)))}); break;
      case 'K': push(static_cast<int64_t>(number(1))); break;
      case 'M': push(static_cast<int64_t>(number(2))); break;
      case 0x8a: push(long_number()); break;
      case 'N': push(None{}); break;
      case 0x88: push(true); break;
      case 0x89: push(false); break;
      case 'q': memo_[static_cast<uint32_t>(number(1))] = top(); break;
      case 'r': memo_[static_cast<uint32_t>(number(4))] = top(); break;
      case 0x94: memo_[static_cast<uint32_t>(memo_.size())] = top(); break;
      case 'h': recall(static_cast<uint32_t>(number(1))); break;
      case 'j': recall(static_cast<uint32_t>(number(4))); break;
      case 's': {
        const Ref value = pop(), key = pop();
        set_items({key, value});
        break;
      }
      case 'u': set_items(pop_to_mark()); break;
      case 'a': append({pop()}); break;
      case 'e': append(pop_to_mark()); break;
      case 'Q': push(storage_of(need<Tuple>(pop(), "the description of a storage"))); break;
      case 'c': {
        const std::string module = line(), name = line();
        push(global(module, name));
        break;
      }
      case 0x93: {
        const Ref name = pop(), module = pop();
        push(global(need<std::string>(module, "the module of a name"), need<std::string>(name, "a name")));
        break;
      }
      case 'R': {
        const Ref arguments = pop(), function = pop();
        call(function, need<Tuple>(arguments, "a list of arguments"));
        break;
      }
      case 'b':  // attributes of a dictionary, which tell PyTorch its version: not needed
        pop();
        need<Dict>(top(), "a dictionary with attributes");
        break;
      default: refuse(fmt::format("it has the instruction 0x{:02x}, which a file of tensors does not need", code));
    }
    return true;
  }

  int64_t long_number() {
    const int size = static_cast<int>(number(1));
    if (size > 8) refuse("a number is too large");
    const uint64_t bits = number(size);
    if (size == 0) return 0;
    const int unused = 64 - 8 * size;
    return static_cast<int64_t>(bits << unused) >> unused;
  }

  void recall(uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("it recalls a value that it did not keep");
    stack_.push_back(found->second);
  }

  void set_items(const std::vector<Ref>& items) {
    if (items.size() % 2 != 0) refuse("a key has no value");
    Dict& dict = need<Dict>(top(), "a dictionary");
    for (size_t i = 0; i < items.size(); i += 2) dict.items.emplace_back(items[i], items[i + 1]);
  }
  void append(const std::vector<Ref>& items) {
    List& list = need<List>(top(), "a list");
    list.items.insert(list.items.end(), items.begin(), items.end());
  }

  static Value global(const std::string& module, const std::string& name) {
    if (auto known = known_global(module, name)) return std::move(*known);
    refuse(fmt::format("it calls {}.{}, which is not needed for tensors", printable(module.substr(0, 200)),
                       printable(name.substr(0, 200))));
  }

  // ('storage', class, key, device, number of elements)
  Value storage_of(const Tuple& id) {
    constexpr const char* kWrong = "the description of a storage is not one of PyTorch's";
    if (id.items.size() != 5) refuse(kWrong);
    const auto* word = as<std::string>(id.items[0]);
    const auto* dtype = as<DType>(id.items[1]);
    const auto* key = as<std::string>(id.items[2]);
    const auto* count = as<int64_t>(id.items[4]);
    if (!word || *word != "storage" || !dtype || !key || !count || *count < 0) refuse(kWrong);
    const auto file = storages_.find(*key);
    if (file == storages_.end()) refuse(fmt::format("the values {} are missing in the archive", printable(key->substr(0, 100))));
    const auto size = static_cast<uint64_t>(info(*dtype).block_bytes);
    if (static_cast<uint64_t>(*count) > file->second.size() / size)
      refuse(fmt::format("the values {} are too short for {} elements", printable(key->substr(0, 100)), *count));
    return Storage{*dtype, file->second.first(static_cast<size_t>(static_cast<uint64_t>(*count) * size))};
  }

  void call(Ref function, const Tuple& arguments) {
    const auto* known = as<Function>(function);
    if (!known) refuse("it calls something that is not a function");
    switch (*known) {
      case Function::OrderedDict:
        if (!arguments.items.empty()) refuse("a dictionary is made of something else than its items");
        return push(Dict{});
      case Function::RebuildTensor: return push(tensor_of(arguments));
      case Function::RebuildParameter: {
        if (arguments.items.empty()) refuse("a parameter without a tensor");
        need<PickledTensor>(arguments.items[0], "the tensor of a parameter");
        return stack_.push_back(arguments.items[0]);
      }
    }
  }

  std::vector<int64_t> numbers(Ref ref, const char* what) {
    std::vector<int64_t> list;
    for (const Ref item : need<Tuple>(ref, what).items) list.push_back(need<int64_t>(item, what));
    return list;
  }

  // (storage, first element, shape, strides, requires_grad, hooks[, metadata])
  PickledTensor tensor_of(const Tuple& arguments) {
    if (arguments.items.size() < 6 || arguments.items.size() > 7) refuse("a tensor with unknown arguments");
    const Storage storage = need<Storage>(arguments.items[0], "the storage of a tensor");
    const int64_t first = need<int64_t>(arguments.items[1], "the offset of a tensor");
    const auto shape = numbers(arguments.items[2], "the shape of a tensor");
    const auto strides = numbers(arguments.items[3], "the strides of a tensor");
    if (shape.size() > kMostAxes || strides.size() != shape.size()) refuse("a tensor with too many axes");
    const auto width = static_cast<uint64_t>(info(storage.dtype).block_bytes);
    const uint64_t elements = storage.bytes.size() / width;
    if (first < 0 || static_cast<uint64_t>(first) > elements) refuse("a tensor begins outside its storage");
    // The last element, and the product of all extents but zeros. Both stay far below 2^64.
    uint64_t last = static_cast<uint64_t>(first), product = 1;
    bool is_empty = false;
    for (size_t i = 0; i < shape.size(); ++i) {
      constexpr int64_t kMost = int64_t{1} << 30;
      const int64_t extent = shape[i], stride = strides[i];
      if (extent < 0 || stride < 0 || extent > kMost || stride > kMost) refuse("a tensor with an impossible shape");
      is_empty = is_empty || extent == 0;
      product *= static_cast<uint64_t>(std::max<int64_t>(extent, 1));
      if (product > static_cast<uint64_t>(kMost)) refuse("a tensor is too large");
      last += static_cast<uint64_t>(std::max<int64_t>(extent, 1) - 1) * static_cast<uint64_t>(stride);
    }
    if (!is_empty && last >= elements) refuse("a tensor ends outside its storage");
    PickledTensor t{.name = {}, .dtype = storage.dtype, .shape = Shape(shape), .strides = Shape(strides), .storage = {}};
    t.storage = storage.bytes.subspan(static_cast<size_t>(static_cast<uint64_t>(first) * width));
    return t;
  }

  std::vector<PickledTensor> tensors_in(const Dict& dict) {
    std::vector<PickledTensor> list;
    std::set<std::string> names;
    for (const auto& [key, value] : dict.items) {
      const auto* tensor = as<PickledTensor>(value);
      if (!tensor) continue;
      list.push_back(*tensor);
      list.back().name = need<std::string>(key, "the name of a tensor");
      if (!names.insert(list.back().name).second)
        refuse(fmt::format("the tensor {} is in it twice", printable(list.back().name.substr(0, 200))));
    }
    if (list.empty()) refuse("it does not contain a dictionary of tensors");
    return list;
  }

  std::span<const std::byte> program_;
  const StorageFiles& storages_;
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, Ref> memo_;
};

}  // namespace

Tensor PickledTensor::open() const {
  const Tensor result = Tensor::host_empty(dtype, shape);
  const auto width = static_cast<size_t>(info(dtype).block_bytes);
  const int64_t count = shape.numel();
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  auto* to = result.data<std::byte>();
  for (int64_t i = 0; i < count; ++i, to += width) {
    int64_t from = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) from += index[static_cast<size_t>(axis)] * strides[axis];
    std::memcpy(to, storage.data() + static_cast<size_t>(from) * width, width);
    for (int axis = shape.rank(); axis-- > 0;)
      if (++index[static_cast<size_t>(axis)] < shape[axis]) break;
      else index[static_cast<size_t>(axis)] = 0;
  }
  return result;
}

std::vector<PickledTensor> read_torch_pickle(std::span<const std::byte> file) {
  constexpr std::string_view kPickle = "data.pkl", kData = "data/";
  if (file.size() >= 1 && file[0] == std::byte{0x80})
    refuse("it was written by a PyTorch older than 1.6, whose format is not a zip archive");
  const auto files = read_stored_zip(file);
  const auto pickle = std::find_if(files.begin(), files.end(), [&](const auto& f) {
    return f.first == kPickle || f.first.ends_with("/" + std::string(kPickle));
  });
  if (pickle == files.end()) refuse("the zip archive has no data.pkl");
  if (pickle->second.size() > kLargestPickle) refuse("it is too large for a file of tensors");
  const std::string folder = pickle->first.substr(0, pickle->first.size() - kPickle.size());
  if (const auto order = files.find(folder + "byteorder"); order != files.end()) {
    const std::string_view word(reinterpret_cast<const char*>(order->second.data()), order->second.size());
    if (word != "little") refuse("its values are not in little-endian order");
  }
  StorageFiles storages;
  for (const auto& [name, bytes] : files)
    if (name.starts_with(folder + std::string(kData))) storages.emplace(name.substr(folder.size() + kData.size()), bytes);

  std::vector<PickledTensor> tensors = Unpickler(pickle->second, storages).tensors();
  // Tensors may share values. What they hold together must not be more than the file has, else a small file could fill a disk.
  uint64_t total = 0;
  for (const PickledTensor& t : tensors) {
    total += static_cast<uint64_t>(bytes_for(t.dtype, t.shape.numel()));
    if (total > file.size()) refuse("its tensors have more values than the file");
  }
  return tensors;
}

}  // namespace flux2
