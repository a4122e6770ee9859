// Models with tensors of wrong extents: 0, 1, one more or less, huge. Each model is loaded and run like a real one. It is refused
// with a message that names the tensor, or it runs. It never crashes or hangs, and the message is never an internal error.
//
// By default two mutations of every tensor are tried. FLUX2_MUTATIONS=64 tries 64 of each, which takes some minutes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "base/json.h"
#include "base/rng.h"
#include "tests/support/golden.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

struct Mutation {
  std::vector<int64_t> shape;
  bool with_data = true;  // the file is as large as the new shape needs; otherwise its size is unchanged
};

constexpr int64_t kMostBytes = int64_t{8} << 20;  // of a tensor that is written

int64_t bytes_of(const std::vector<int64_t>& shape, int64_t element) {
  int64_t bytes = element;
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
    if (extent < 0 || bytes > kMostBytes || extent > kMostBytes) return -1;
    bytes *= extent;
  }
  return bytes > kMostBytes ? -1 : bytes;
}

// The k-th of a fixed sequence of mutations of a shape.
Mutation mutation_of(const Shape& stored, uint64_t tensor, uint64_t k) {
  uint64_t draw = 0;
  const auto pick = [&](uint64_t count) { return philox(tensor, k, draw++)[0] % count; };
  Mutation m{{stored.begin(), stored.end()}, pick(3) != 0};
  constexpr int64_t kHuge[] = {int64_t{1} << 20,       (int64_t{1} << 24) + 1, int64_t{1} << 31,
                               (int64_t{1} << 32) + 1, int64_t{1} << 62,       INT64_MAX};
  const auto extent = [&](int64_t now) -> int64_t {
    switch (pick(8)) {
      case 0:
      case 1: return 0;
      case 2:
      case 3: return 1;
      case 4: return now - 1;
      case 5: return now + 1;
      case 6: return 2 * now;
      default: return kHuge[pick(std::size(kHuge))];
    }
  };
  switch (m.shape.empty() ? 0 : pick(10)) {
    case 0: m.shape.insert(m.shape.begin(), extent(1)); break;                                         // one axis more
    case 1: m.shape.pop_back(); break;                                                                 // one less
    case 2: m.shape.assign(m.shape.size(), 0); break;                                                  // nothing at all
    case 3: m.shape[pick(m.shape.size())] = 0, m.shape.back() = kHuge[pick(std::size(kHuge))]; break;  // no bytes, huge extents
    default: {
      const auto axis = static_cast<size_t>(pick(m.shape.size()));
      m.shape[axis] = extent(m.shape[axis]);
    }
  }
  return m;
}

// Writes a copy of a safetensors file in which one tensor has another shape.
void write_mutated(const WeightSource& source, size_t which, const Mutation& mutation, const fs::path& path) {
  Json header = Json::object();
  std::vector<std::byte> data;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const StoredTensor& t = source.tensors()[i];
    std::vector<int64_t> shape(t.shape.begin(), t.shape.end());
    std::vector<std::byte> bytes(t.bytes.begin(), t.bytes.end());
    if (i == which) {
      const int64_t element = t.shape.numel() > 0 ? static_cast<int64_t>(t.bytes.size()) / t.shape.numel() : 1;
      shape = mutation.shape;
      if (const int64_t wanted = bytes_of(shape, element); mutation.with_data && wanted >= 0) {
        const std::vector<std::byte> before = bytes;
        bytes.resize(static_cast<size_t>(wanted));
        for (size_t b = before.size(); b < bytes.size(); ++b) bytes[b] = before.empty() ? std::byte{} : before[b % before.size()];
      }
    }
    header[t.name] = {{"dtype", t.dtype_name}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data.insert(data.end(), bytes.begin(), bytes.end());
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text;
  out.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
}

struct Counts {
  int refused = 0, ran = 0;
  int total() const { return refused + ran; }
};

class DamagedShape : public testing::Test {
 protected:
  DamagedShape() : folder_(fs::path(testing::TempDir()) / fmt::format("flux2_damaged_shape_{}", ::getpid())) {
    fs::create_directories(folder_ / "text_encoder");
    fs::copy(golden_path("tiny/text_encoder/config.json"), folder_ / "text_encoder", fs::copy_options::overwrite_existing);
    const char* asked = std::getenv("FLUX2_MUTATIONS");
    each_ = asked ? std::strtoull(asked, nullptr, 10) : 2;
  }
  ~DamagedShape() override { fs::remove_all(folder_); }

  void sweep(const std::string& original, const fs::path& mutated, ModelFiles files) {
    files.defaults.text_length = 8;  // quick
    const auto source = open_weights(original);
    const Engine engine({.device = "cpu", .threads = 1});
    Counts counts;
    for (size_t i = 0; i < source->tensors().size(); ++i)
      for (uint64_t k = 0; k < each_; ++k) {
        const StoredTensor& tensor = source->tensors()[i];
        const Mutation mutation = mutation_of(tensor.shape, i, k);
        const std::string about = fmt::format("{} as [{}]{}", tensor.name, fmt::join(mutation.shape, ", "),
                                              mutation.with_data ? "" : " without the bytes for it");
        write_mutated(*source, i, mutation, mutated);
        const auto start = std::chrono::steady_clock::now();
        try_one(engine, files, tensor.name, about, counts);
        ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << about;
      }
    fmt::print("{}: {} mutations of {} tensors, {} refused by name, {} ran\n", fs::path(original).filename().string(),
               counts.total(), source->tensors().size(), counts.refused, counts.ran);
    EXPECT_GT(counts.refused, 0);
  }

  static void try_one(const Engine& engine, const ModelFiles& files, const std::string& tensor, const std::string& about,
                      Counts& counts) {
    Request request;
    request.prompt = "a fox";
    request.width = request.height = 32;
    request.steps = 1;
    request.references.push_back(std::make_shared<const Planes>(Planes{16, 16, std::vector<float>(768, 0.5f)}));
    try {
      const auto session = engine.open(files);
      text_to_image(*session, request, {}, [](const Picture&) {});
      ++counts.ran;
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::BadFile || e.code() == ErrorCode::Incompatible)
          << about << ": " << name_of(e.code()) << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find(tensor), std::string::npos) << about << " is not named: " << e.what();
      ++counts.refused;
    } catch (const std::exception& e) {
      ADD_FAILURE() << about << ": " << e.what();
    }
  }

  fs::path folder_;
  uint64_t each_ = 2;
};

TEST_F(DamagedShape, Transformer) {
  ModelFiles files = tiny_model();
  files.transformer = folder_ / "transformer.safetensors";
  sweep(golden_path("tiny/flux-2-klein-tiny.safetensors"), files.transformer, files);
}

TEST_F(DamagedShape, TextEncoder) {
  ModelFiles files = tiny_model();
  files.text_encoder = folder_ / "text_encoder";
  sweep(golden_path("tiny/text_encoder/model.safetensors"), folder_ / "text_encoder/model.safetensors", files);
}

TEST_F(DamagedShape, Autoencoder) {
  ModelFiles files = tiny_model();
  files.vae = folder_ / "ae.safetensors";
  sweep(golden_path("tiny/ae.safetensors"), files.vae, files);
}

// A norm weight of shape [0] was divided by.
TEST_F(DamagedShape, NormWithoutElements) {
  const auto source = open_weights(golden_path("tiny/text_encoder/model.safetensors"));
  ModelFiles files = tiny_model();
  files.text_encoder = folder_ / "text_encoder";
  const std::string name = "model.layers.0.self_attn.q_norm.weight";
  for (size_t i = 0; i < source->tensors().size(); ++i)
    if (source->tensors()[i].name == name) write_mutated(*source, i, {{0}, true}, folder_ / "text_encoder/model.safetensors");
  try {
    Engine({.device = "cpu", .threads = 1}).open(files);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    EXPECT_NE(std::string(e.what()).find("the tensor " + name + " has shape [0]"), std::string::npos) << e.what();
  }
}

// Weights that are not numbers used to be reported as an internal error.
TEST_F(DamagedShape, WeightsThatAreNotNumbers) {
  const auto source = open_weights(golden_path("tiny/flux-2-klein-tiny.safetensors"));
  ModelFiles files = tiny_model();
  files.transformer = folder_ / "nan.safetensors";
  const std::string name = "img_in.weight";
  size_t which = 0;
  while (source->tensors()[which].name != name) ++which;
  const StoredTensor& tensor = source->tensors()[which];
  write_mutated(*source, which, {{tensor.shape.begin(), tensor.shape.end()}, true}, files.transformer);
  {
    std::fstream file(files.transformer, std::ios::in | std::ios::out | std::ios::binary);
    const auto mapped = open_weights(files.transformer);
    const StoredTensor* stored = mapped->find(name);
    file.seekp(stored->bytes.data() - stored->file->bytes().data());
    const uint16_t nan = 0x7fc0;
    file.write(reinterpret_cast<const char*>(&nan), sizeof nan);
  }
  Request request;
  request.width = request.height = 32;
  request.steps = 1;
  const Engine engine({.device = "cpu", .threads = 1});
  const auto session = engine.open(files);
  try {
    text_to_image(*session, request, {}, [](const Picture&) {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    EXPECT_NE(std::string(e.what()).find("nan.safetensors: the tensor img_in.weight contains values that are not numbers"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace flux2
