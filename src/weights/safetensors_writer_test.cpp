#include "weights/safetensors_writer.h"

#include <gmock/gmock.h>

#include <cstring>

#include "base/json.h"
#include "tests/support/paths.h"
#include "weights/test_files.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

using namespace testing_files;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> counting(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(SafetensorsWriter, LaysOutWideTypesFirstThenByName) {
  const auto path = scratch_folder() / "x.safetensors";
  SafetensorsWriter writer(path,
                           {{"z", DType::BF16, {2}},
                            {"a", DType::U8, {3}},
                            {"i", DType::I32, {1}},
                            {"f", DType::F32, {}},
                            {"b", DType::BF16, {1, 1}},
                            {"e", DType::F32, {0, 4}}},
                           {{"k", "v\"\n"}, {"a", "ü"}});
  const auto data = counting(32);
  const auto piece = [&](size_t from, size_t n) { return std::span(data).subspan(from, n); };
  writer.write("f", piece(0, 1));
  writer.write("f", piece(1, 3));
  writer.write("i", piece(4, 4));
  writer.write("b", piece(8, 2));
  writer.write("z", piece(10, 4));
  writer.write("a", piece(14, 3));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();

  const std::string text = read_text_file(path);
  const size_t header = static_cast<unsigned char>(text[0]) + 256 * static_cast<unsigned char>(text[1]);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(text.size(), 8 + header + 17);
  const std::string expected =
      R"({"__metadata__":{"a":"ü","k":"v\"\n"},"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
      R"("f":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"i":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},)"
      R"("b":{"dtype":"BF16","shape":[1,1],"data_offsets":[8,10]},"z":{"dtype":"BF16","shape":[2],"data_offsets":[10,14]},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[14,17]}})";
  EXPECT_EQ(text.substr(8, expected.size()), expected);
  EXPECT_EQ(text.substr(8 + expected.size(), header - expected.size()), std::string(header - expected.size(), ' '));

  const auto source = open_weights(path);
  EXPECT_THAT(source->names(), ElementsAre("e", "f", "i", "b", "z", "a"));
  EXPECT_EQ(source->metadata(), (std::map<std::string, std::string>{{"a", "ü"}, {"k", "v\"\n"}}));
  EXPECT_EQ(std::memcmp(source->find("z")->bytes.data(), data.data() + 10, 4), 0);
}

TEST(SafetensorsWriter, RejectsDataThatWasNotDeclared) {
  const auto path = scratch_folder() / "x.safetensors";
  const auto data = counting(16);
  const std::span<const std::byte> bytes(data);
  {
    SafetensorsWriter writer(path, {{"a", DType::F32, {2}}, {"b", DType::F32, {1}}});
    EXPECT_THAT(refusal([&] { writer.write("b", bytes.first(4)); }), HasSubstr("b is written where a is due"));
    EXPECT_THAT(refusal([&] { writer.write("a", bytes.first(9)); }), HasSubstr("a gets more than its 8 bytes"));
    writer.write("a", bytes.first(8));
    EXPECT_THAT(refusal([&] { writer.commit(); }), HasSubstr("b has 0 of its 4 bytes"));
    writer.write("b", bytes.first(4));
    EXPECT_THAT(refusal([&] { writer.write("b", bytes.first(1)); }), HasSubstr("b is written after the last one"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(path.parent_path()));  // never committed
}

TEST(SafetensorsWriter, RejectsUnsupportedTypes) {
  const auto path = scratch_folder() / "x.safetensors";
  const auto refused = [&](std::vector<SafetensorsWriter::Declared> tensors) {
    return refusal([&] { SafetensorsWriter writer(path, std::move(tensors)); });
  };
  EXPECT_THAT(refused({{"a", DType::F32, {1}}, {"a", DType::U8, {1}}}), HasSubstr("tensor a is to be written twice"));
  EXPECT_THAT(refused({{"__metadata__", DType::F32, {1}}}), HasSubstr("cannot be named __metadata__"));
  EXPECT_THAT(refused({{"q", DType::Q8_0, {32}}}), HasSubstr("cannot hold Q8_0"));
  EXPECT_THAT(refused({{"\xff", DType::F32, {1}}}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(refused({{"n", DType::F32, {-1}}}), HasSubstr("cannot have the shape [-1]"));
  EXPECT_TRUE(std::filesystem::is_empty(path.parent_path()));
}

TEST(SafetensorsWriter, SavesTensors) {
  const auto path = scratch_folder() / "x.safetensors";
  const float values[] = {1, 2, 3, 4, 5, 6};
  const int64_t count[] = {7};
  save_tensors(path, {{"m", Tensor::host_copy(values, DType::F32, {2, 3})}, {"n", Tensor::host_copy(count, DType::I64, {})}},
               {{"by", "test"}});
  const auto source = open_weights(path);
  EXPECT_THAT(source->names(), ElementsAre("n", "m"));
  EXPECT_EQ(*source->open("n").data<int64_t>(), 7);
  EXPECT_EQ(source->open("m").shape(), (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(source->open("m").raw(), values, sizeof values), 0);
  EXPECT_EQ(source->metadata().at("by"), "test");
}

// The file of the reference writer, read and written again, is the same file byte for byte.
TEST(SafetensorsWriter, ReproducesAFileOfTheReferenceWriter) {
  for (const char* name : {"flux-2-klein-tiny.safetensors", "ae.safetensors", "text_encoder/model.safetensors"}) {
    const auto original = test::golden_folder() / "tiny" / name, copy = scratch_folder() / "copy.safetensors";
    const auto source = open_weights(original);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& tensor : source->names()) tensors.emplace_back(tensor, source->open(tensor));
    save_tensors(copy, tensors, source->metadata());
    EXPECT_TRUE(read_text_file(copy) == read_text_file(original)) << name;
  }
}

}  // namespace
}  // namespace flux2
