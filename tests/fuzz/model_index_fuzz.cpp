#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "hub/folder_layout.h"
#include "hub/recognise.h"
#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

const fs::path& model_folder() {
  static const fs::path path = [] {
    const fs::path base = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    const fs::path own = base / ("flux2-index-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(own / "text_encoder");
    return own;
  }();
  return path;
}

void write(const fs::path& name, std::string_view text) {
  std::ofstream(model_folder() / name, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace

// A folder whose model_index.json, config.json and index of shards are any text.
FUZZ_TARGET(model_index) {
  using namespace flux2;
  const std::string_view text = flux2_fuzz::text_of(data, size);
  for (const char* name :
       {"model_index.json", "config.json", "text_encoder/config.json", "text_encoder/model.safetensors.index.json"})
    write(name, text);
  try {
    model_index_near(model_folder() / "transformer");
  } catch (const Error&) {}
  for (const ComponentKind kind : {ComponentKind::Transformer, ComponentKind::TextEncoder, ComponentKind::Tokenizer}) try {
      candidates_in(model_folder(), kind);
    } catch (const Error&) {}
  model_index_of(model_folder());
}
