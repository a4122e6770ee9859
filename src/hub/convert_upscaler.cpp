#include "hub/convert_upscaler.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "weights/safetensors_writer.h"
#include "weights/torch_pickle.h"

namespace flux2 {

ConvertedUpscaler convert_upscaler(const std::filesystem::path& pickle, const std::filesystem::path& out) {
  const auto file = MappedFile::open(pickle);
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::vector<StoredTensor> stored;
  in_context(pickle.string(), [&] {
    for (const PickledTensor& t : read_torch_pickle(file->bytes())) {
      if (!is_float(t.dtype)) continue;  // counters of the training
      tensors.emplace_back(t.name, t.open());
      const Tensor& opened = tensors.back().second;
      stored.push_back({.name = t.name,
                        .dtype_name = info(t.dtype).name,
                        .dtype = t.dtype,
                        .shape = t.shape,
                        .bytes = {opened.data<std::byte>(), static_cast<size_t>(opened.bytes())}});
    }
  });
  check_mapped_files();
  const UpscalerConfig config = detect_upscaler(WeightSource(std::move(stored), {}, pickle.string()));
  ConvertedUpscaler result{.config = config, .tensors = static_cast<int64_t>(tensors.size()), .bytes = 0};
  for (const auto& [name, tensor] : tensors) result.bytes += tensor.bytes();
  save_tensors(out, tensors);
  return result;
}

}  // namespace flux2
