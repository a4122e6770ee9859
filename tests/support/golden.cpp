#include "tests/support/golden.h"

#include "ops/view.h"
#include "tests/support/paths.h"

namespace flux2 {

std::string golden_path(const std::string& name) { return (test::golden_folder() / name).string(); }

Golden::Golden(const std::string& name) : source_(open_weights(golden_path(name))) {}

Tensor Golden::on(Stream& stream, const std::string& name, DType dtype) const { return (*this)[name].to(stream).cast(dtype); }

ModelFiles tiny_model(const std::string& transformer) {
  ModelFiles files;
  files.id = "tiny";
  files.transformer = golden_path("tiny/" + transformer);
  files.vae = golden_path("tiny/ae.safetensors");
  files.text_encoder = golden_path("tiny/text_encoder");
  files.tokenizer = golden_path("tiny/tokenizer");
  return files;
}

ModelFiles short_text_model(const std::string& transformer) {
  ModelFiles files = tiny_model(transformer);
  files.defaults.text_length = kShortText;
  return files;
}

Tensor channels_last(const Tensor& chw) {
  const Tensor y = contiguous(permute(chw, {1, 2, 0}));
  return reshape(y, {1, y.dim(0), y.dim(1), y.dim(2)});
}

std::vector<double> channels_first(const Tensor& bhwc) {
  return contiguous(permute(reshape(bhwc, {bhwc.dim(1), bhwc.dim(2), bhwc.dim(3)}), {2, 0, 1})).to_doubles();
}

}  // namespace flux2
