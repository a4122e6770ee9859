#include "weights/weight_source.h"

#include <gmock/gmock.h>

#include "weights/test_files.h"

namespace flux2 {
namespace {

using namespace testing_files;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file of one-byte tensors with these names.
std::string file_of(const std::vector<std::string>& names) {
  std::string header = R"({"__metadata__":{"first":")" + names[0] + "\"}";
  for (size_t i = 0; i < names.size(); ++i)
    header += fmt::format(R"(,"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", names[i], i, i + 1);
  return container(header + "}", names.size());
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& map, const std::string& metadata = "{}") {
  std::string text;
  for (const auto& [tensor, file] : map) text += fmt::format("{}\"{}\":\"{}\"", text.empty() ? "" : ",", tensor, file);
  return "{\"metadata\":" + metadata + ",\"weight_map\":{" + text + "}}";
}

std::string refused(const std::filesystem::path& path) {
  return refusal([&] { open_weights(path); });
}

TEST(WeightSource, OpensOneFile) {
  const auto folder = scratch_folder();
  write_file(folder / "x.safetensors", file_of({"b", "a"}));
  const auto source = open_weights(folder / "x.safetensors");
  EXPECT_THAT(source->names(), ElementsAre("b", "a"));
  ASSERT_NE(source->find("a"), nullptr);
  EXPECT_EQ(source->find("c"), nullptr);
  EXPECT_EQ(source->find(""), nullptr);
  EXPECT_EQ(source->metadata().at("first"), "b");
  EXPECT_EQ(source->total_bytes(), 2u);
  EXPECT_THAT(source->description(), HasSubstr("x.safetensors"));
  EXPECT_EQ(*source->open("a").data<uint8_t>(), 1);
  EXPECT_THAT(refusal([&] { source->open("c"); }), HasSubstr("x.safetensors has no tensor c"));
}

TEST(WeightSource, TensorsOutliveTheSource) {
  const auto folder = scratch_folder();
  write_file(folder / "x.safetensors", file_of({"b", "a"}));
  const Tensor a = open_weights(folder / "x.safetensors")->open("a");
  EXPECT_EQ(*a.data<uint8_t>(), 1);
}

TEST(WeightSource, RefusesFilesWithoutTensors) {
  const auto folder = scratch_folder();
  write_file(folder / "x.safetensors", container("{}"));
  EXPECT_THAT(refused(folder / "x.safetensors"), HasSubstr("x.safetensors contains no tensors"));
}

TEST(WeightSource, OnePartOpensTheWholeSeries) {
  const auto folder = scratch_folder();
  write_file(folder / "m-00001-of-00003.safetensors", file_of({"a"}));
  write_file(folder / "m-00003-of-00003.safetensors", file_of({"c"}));
  EXPECT_THAT(refused(folder / "m-00003-of-00003.safetensors"),
              HasSubstr("1 of 3 files are missing: m-00002-of-00003.safetensors"));
  write_file(folder / "m-00002-of-00003.safetensors", file_of({"b"}));
  const auto source = open_weights(folder / "m-00002-of-00003.safetensors");
  EXPECT_THAT(source->names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(source->metadata().at("first"), "a");
  EXPECT_THAT(source->description(), HasSubstr("m (3 files)"));
  write_file(folder / "m-00002-of-00003.safetensors", file_of({"b", "c"}));
  EXPECT_THAT(refused(folder / "m-00002-of-00003.safetensors"),
              HasSubstr("tensor c is in m-00002-of-00003.safetensors and in m-00003-of-00003.safetensors"));
  write_file(folder / "m-00004-of-00003.safetensors", file_of({"z"}));
  EXPECT_THAT(refused(folder / "m-00004-of-00003.safetensors"), HasSubstr("part 4 of 3 is not valid"));
}

TEST(WeightSource, NamesThatOnlyLookLikeASeriesAreFiles) {
  const auto folder = scratch_folder();
  for (const char* name : {"best-of-10.safetensors", "a-of-2.safetensors", "x-1-of-.safetensors", "-of-3.safetensors"}) {
    write_file(folder / name, file_of({"a"}));
    EXPECT_EQ(refused(folder / name), "") << name;
  }
}

TEST(WeightSource, OpensAnIndex) {
  const auto folder = scratch_folder();
  write_file(folder / "m-00001-of-00002.safetensors", file_of({"a"}));
  write_file(folder / "sub/two.safetensors", file_of({"c", "b"}));
  write_file(folder / "m.safetensors.index.json",
             index_of({{"c", "sub/two.safetensors"}, {"a", "m-00001-of-00002.safetensors"}, {"b", "sub/two.safetensors"}},
                      "{\"total_size\":3}"));
  Lines kept;
  const auto source = open_weights(folder / "m.safetensors.index.json", kept.log);
  EXPECT_THAT(source->names(), ElementsAre("a", "c", "b"));
  EXPECT_TRUE(kept.lines.empty());
  EXPECT_THAT(open_weights(folder / "m-00001-of-00002.safetensors")->names(), ElementsAre("a", "c", "b"));
  EXPECT_THAT(open_weights(folder)->names(), ElementsAre("a", "c", "b"));
}

TEST(WeightSource, IndexFilesMustStayInTheFolder) {
  const auto folder = scratch_folder();
  const auto with = [&](const std::string& file) {
    write_file(folder / "m.safetensors.index.json", index_of({{"a", file}}));
    return refused(folder / "m.safetensors.index.json");
  };
  EXPECT_THAT(with("/etc/passwd"), HasSubstr("\"/etc/passwd\", which is an absolute path"));
  EXPECT_THAT(with("../x.safetensors"), HasSubstr("which leaves the folder"));
  EXPECT_THAT(with("a/../../x.safetensors"), HasSubstr("which leaves the folder"));
  EXPECT_THAT(with("C:x.safetensors"), HasSubstr("drive letter"));
  EXPECT_THAT(with("a\\\\x.safetensors"), HasSubstr("back-slash"));
  EXPECT_THAT(with(""), HasSubstr("which is empty"));
  EXPECT_THAT(with("x\\u0000.safetensors"), HasSubstr("zero byte"));
  EXPECT_THAT(with("x.safetensors"), HasSubstr("1 of 1 files are missing: x.safetensors"));
}

TEST(WeightSource, IndexAndFilesMustAgree) {
  const auto folder = scratch_folder();
  const auto index = folder / "m.safetensors.index.json";
  write_file(folder / "1.safetensors", file_of({"a", "extra"}));
  write_file(folder / "2.safetensors", file_of({"b"}));
  write_file(index, index_of({{"a", "1.safetensors"}, {"b", "2.safetensors"}}, "{\"total_size\":99,\"other\":[1]}"));
  Lines kept;
  EXPECT_THAT(open_weights(index, kept.log)->names(), ElementsAre("a", "b"));
  EXPECT_THAT(kept.lines, ElementsAre(HasSubstr("ignoring 1 tensors that are not in the index: extra"),
                                      HasSubstr("total_size is 99, the tensors have 2 bytes")));

  write_file(index, index_of({{"a", "1.safetensors"}, {"b", "1.safetensors"}}));
  EXPECT_THAT(refused(index), HasSubstr("1.safetensors does not contain tensors that the index assigns to it: b"));

  write_file(folder / "2.safetensors", file_of({"b", "a"}));
  write_file(index, index_of({{"a", "1.safetensors"}, {"b", "2.safetensors"}}));
  EXPECT_THAT(refused(index), HasSubstr("tensor a is in two of the files"));

  write_file(index, index_of({{"a", "1.safetensors"}, {"a", "2.safetensors"}}));
  EXPECT_THAT(refused(index), HasSubstr("maps tensor a twice"));
}

TEST(WeightSource, RejectsInvalidIndexes) {
  const auto index = scratch_folder() / "m.safetensors.index.json";
  for (const char* text : {"[]", "5", R"({"weight_map":5})", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
                           R"({"weight_map":{"a":{}}})", R"({"weight_map":{},"weight_map":{}})"}) {
    write_file(index, text);
    EXPECT_THAT(refused(index), HasSubstr("weight_map must map tensor names to file names")) << text;
  }
  write_file(index, "{}");
  EXPECT_THAT(refused(index), HasSubstr("it has no weight_map"));
  write_file(index, "");
  EXPECT_THAT(refused(index), HasSubstr("not valid JSON"));
  write_file(index, "{");
  EXPECT_THAT(refused(index), HasSubstr("not valid JSON"));
  write_file(index, R"({"weight_map":{}})");
  EXPECT_THAT(refused(index), HasSubstr("contains no tensors"));
}

TEST(WeightSource, ASingleFileIsPreferredToItsIndex) {
  const auto folder = scratch_folder();
  write_file(folder / "model.safetensors", file_of({"single"}));
  write_file(folder / "model.safetensors.index.json", index_of({{"a", "absent.safetensors"}}));
  for (const auto& path : {folder, folder / "model.safetensors.index.json"}) {
    Lines kept;
    EXPECT_THAT(open_weights(path, kept.log)->names(), ElementsAre("single"));
    EXPECT_THAT(kept.lines, ElementsAre(HasSubstr("instead of the index beside it")));
  }
}

TEST(WeightSource, FindsTheModelOfAFolder) {
  const auto folder = scratch_folder();
  EXPECT_THAT(refused(folder), HasSubstr("contains no .safetensors or .gguf file"));
  EXPECT_THAT(refused(folder / "absent"), HasSubstr("absent"));
  write_file(folder / "x-1-of-2.safetensors", file_of({"one"}));
  write_file(folder / "x-2-of-2.safetensors", file_of({"two"}));
  EXPECT_THAT(open_weights(folder)->names(), ElementsAre("one", "two"));
  write_file(folder / "y.safetensors", file_of({"y"}));
  EXPECT_THAT(refused(folder), HasSubstr("contains several models: x-1-of-2.safetensors, y.safetensors | name the file"));
  write_file(folder / "diffusion_pytorch_model.safetensors", file_of({"d"}));
  EXPECT_THAT(open_weights(folder)->names(), ElementsAre("d"));
  write_file(folder / "model.safetensors", file_of({"m"}));
  EXPECT_THAT(open_weights(folder)->names(), ElementsAre("m"));
}

TEST(WeightSource, UnsupportedTypesFailOnlyWhenOpened) {
  const auto path = scratch_folder() / "x.safetensors";
  write_file(path, container(R"({"f":{"dtype":"F99","shape":[7],"data_offsets":[0,3]}})", 3));
  const auto source = open_weights(path);
  EXPECT_THAT(refusal([&] { source->open("f"); }), HasSubstr("tensor f is stored as F99, which is not supported"));
}

}  // namespace
}  // namespace flux2
