#include "weights/torch_pickle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "tests/support/paths.h"
#include "weights/stored_zip.h"
#include "weights/test_files.h"

namespace flux2 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_files::bytes_of;
using testing_files::refusal;

// A file that torch.save of PyTorch 2.15 wrote; they are the seeds of the fuzzer too.
std::string saved_by_torch(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(test::source_folder() / "tests/fuzz/corpus/torch_pickle" / (name + ".bin"), std::ios::binary).rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

std::string number(uint64_t value, int size) {
  std::string text;
  for (int i = 0; i < size; ++i, value >>= 8) text += static_cast<char>(value);
  return text;
}

// A zip archive of stored files.
std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files, int method = 0, int flags = 0) {
  std::string archive, directory;
  for (const auto& [name, content] : files) {
    const std::string sizes = number(content.size(), 4) + number(content.size(), 4) + number(name.size(), 2);
    const std::string about = number(20, 2) + number(static_cast<uint64_t>(flags), 2) + number(static_cast<uint64_t>(method), 2) +
                              number(0, 8);  // time, date and checksum, which are not looked at
    directory += "PK\x01\x02" + number(20, 2) + about + sizes + number(0, 12) + number(archive.size(), 4) + name;
    archive += "PK\x03\x04" + about + sizes + number(0, 2) + name + content;
  }
  return archive + directory + "PK\x05\x06" + number(0, 4) + number(files.size(), 2) + number(files.size(), 2) +
         number(directory.size(), 4) + number(archive.size(), 4) + number(0, 2);
}

// What reading an archive with this pickle says; empty when it is read.
std::string refusal_of(const std::string& pickle, const std::string& storage = std::string(16, '\0')) {
  const std::string file = zip_of({{"a/data.pkl", pickle}, {"a/data/0", storage}});
  return refusal([&] { read_torch_pickle(bytes_of(file)); });
}

std::string word(const std::string& text) { return "X" + number(text.size(), 4) + text; }

// One tensor of these sizes over storage 0; the offset "K" is 0.
std::string tensor_pickle(const std::string& shape, const std::string& strides, const std::string& offset = "K",
                          const std::string& count = "K\x04") {
  const std::string pickle = "\x80\x02}(" + word("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + word("storage") +
                             "ctorch\nFloatStorage\n" + word("0") + word("cpu") + count + "tQ";
  const std::string at = offset == "K" ? offset + '\0' : offset;
  return pickle + at + shape + strides + "\x89" + "ccollections\nOrderedDict\n)RtRu.";
}

TEST(TorchPickle, ReadsStateDictionaries) {
  const std::string file = saved_by_torch("params_ema");
  const auto tensors = read_torch_pickle(bytes_of(file));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "conv_first.weight");
  EXPECT_EQ(tensors[0].shape, (Shape{2, 3, 3, 3}));
  const auto values = tensors[0].open().to_floats();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
  EXPECT_THAT(tensors[1].open().to_floats(), ElementsAre(0.5f, -0.25f));

  const std::string module = saved_by_torch("module");
  const auto parts = read_torch_pickle(bytes_of(module));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].name, "bias");
  EXPECT_THAT(parts[0].open().to_floats(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(parts[1].open().to_floats(), ElementsAre(7, 8));
}

TEST(TorchPickle, ReadsAllTypesAndStrides) {
  const std::string file = saved_by_torch("types");
  std::map<std::string, PickledTensor> tensors;
  for (const PickledTensor& t : read_torch_pickle(bytes_of(file))) tensors[t.name] = t;
  EXPECT_EQ(tensors.size(), 7u);
  EXPECT_EQ(tensors["half"].dtype, DType::F16);
  EXPECT_THAT(tensors["half"].open().to_floats(), ElementsAre(1.5f, -2.0f));
  EXPECT_EQ(tensors["bf16"].dtype, DType::BF16);
  EXPECT_THAT(tensors["bf16"].open().to_floats(), ElementsAre(1.5f, -2.0f));
  EXPECT_EQ(tensors["turned"].shape, (Shape{4, 3}));
  EXPECT_THAT(tensors["turned"].open().to_doubles(), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
  EXPECT_THAT(tensors["part"].open().to_doubles(), ElementsAre(5, 6, 9, 10));
  EXPECT_EQ(tensors["count"].dtype, DType::I64);
  EXPECT_EQ(*tensors["count"].open().data<int64_t>(), 3);
  EXPECT_THAT(tensors["parameter"].open().to_floats(), ElementsAre(4));
  EXPECT_EQ(tensors["empty"].open().numel(), 0);
}

TEST(TorchPickle, RefusesEveryOtherNameByName) {
  const std::string evil = saved_by_torch("evil");
  EXPECT_THAT(refusal([&] { read_torch_pickle(bytes_of(evil)); }), HasSubstr("it calls posix.system"));
  const std::vector<std::pair<std::string, std::string>> names = {{"os", "system"},
                                                                  {"builtins", "eval"},
                                                                  {"torch", "load"},
                                                                  {"torch.storage", "_load_from_bytes"},
                                                                  {"torch._utils", "_rebuild_tensor"},
                                                                  {"torch", "IntStorage"},
                                                                  {"collections", "defaultdict"},
                                                                  {"numpy.core.multiarray", "scalar"}};
  for (const auto& [module, name] : names) {
    const std::string called = "it calls " + module + "." + name;
    EXPECT_THAT(refusal_of("\x80\x02"
                           "c" +
                           module + "\n" + name + "\n."),
                HasSubstr(called));
    EXPECT_THAT(refusal_of("\x80\x04" + word(module) + word(name) + "\x93."), HasSubstr(called));
  }
}

TEST(TorchPickle, RefusesOtherInstructions) {
  // INST, OBJ, NEWOBJ, EXT1, PERSID, INT, FLOAT, BINFLOAT, FRAME, POP, DUP, NEXT_BUFFER
  for (const char code : {'i', 'o', '\x81', '\x82', 'P', 'I', 'F', 'G', '\x95', '0', '2', '\x97'}) {
    const std::string said = refusal_of(std::string("\x80\x02") + code + "aaaaaaaaaaaa.");
    EXPECT_THAT(said, HasSubstr(fmt::format("the instruction 0x{:02x}", static_cast<unsigned char>(code)))) << code;
  }
}

TEST(TorchPickle, TensorsStayInsideTheirStorage) {
  EXPECT_EQ(refusal_of(tensor_pickle("K\x04\x85", "K\x01\x85", "K")), "");
  EXPECT_EQ(refusal_of(tensor_pickle("K\x02K\x02\x86", "K\x02K\x01\x86", "K")), "");
  EXPECT_THAT(refusal_of(tensor_pickle("K\x05\x85", "K\x01\x85", "K")), HasSubstr("ends outside its storage"));
  EXPECT_THAT(refusal_of(tensor_pickle("K\x04\x85", "K\x01\x85", "K\x01")), HasSubstr("ends outside its storage"));
  EXPECT_THAT(refusal_of(tensor_pickle("K\x02\x85", "K\x04\x85", "K")), HasSubstr("ends outside its storage"));
  EXPECT_THAT(refusal_of(tensor_pickle("K\x04\x85", "J\xff\xff\xff\xff\x85", "K")), HasSubstr("impossible shape"));
  EXPECT_THAT(refusal_of(tensor_pickle("J\xff\xff\xff\xff\x85", "K\x01\x85", "K")), HasSubstr("impossible shape"));
  EXPECT_THAT(refusal_of(tensor_pickle("K\x04\x85", "K\x01\x85", "K\x05")), HasSubstr("begins outside its storage"));
  EXPECT_THAT(refusal_of(tensor_pickle("K\x05\x85", "K\x01\x85", "K", "K\x05")), HasSubstr("too short for 5 elements"));
  // A view in which one value stands for many is larger than the file.
  EXPECT_THAT(refusal_of(tensor_pickle(std::string("M\x00\x40\x85", 4), std::string("K\x00\x85", 3), "K")),
              HasSubstr("more values than the file"));
}

TEST(TorchPickle, DamagedFilesAreRefused) {
  const std::string whole = saved_by_torch("types");
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    EXPECT_NE(refusal([&] { read_torch_pickle(bytes_of(cut)); }), "") << length;
  }
  EXPECT_THAT(refusal([&] { read_torch_pickle(bytes_of(zip_of({{"a.txt", "x"}}))); }), HasSubstr("no data.pkl"));
  EXPECT_THAT(refusal([&] { read_torch_pickle(bytes_of("\x80\x02" + std::string(40, 'a'))); }), HasSubstr("older than 1.6"));
  EXPECT_THAT(refusal_of(""), HasSubstr("ends too early"));
  EXPECT_THAT(refusal_of("."), HasSubstr("more values than it has"));
  EXPECT_THAT(refusal_of("(t."), HasSubstr("dictionary of tensors"));
  EXPECT_THAT(refusal_of("}."), HasSubstr("dictionary of tensors"));
  EXPECT_THAT(refusal_of("h\x07."), HasSubstr("did not keep"));
  EXPECT_THAT(refusal_of("]q\x01h\x01"
                         "a."),
              HasSubstr("dictionary of tensors"))
      << "a list inside itself";
}

TEST(StoredZip, RefusesWhatIsNotStored) {
  EXPECT_EQ(read_stored_zip(bytes_of(zip_of({{"a", "12"}, {"b", ""}}))).size(), 2u);
  EXPECT_THAT(refusal([&] { read_stored_zip(bytes_of(zip_of({{"a", "12"}}, 8))); }), HasSubstr("is compressed"));
  EXPECT_THAT(refusal([&] { read_stored_zip(bytes_of(zip_of({{"a", "12"}}, 0, 1))); }), HasSubstr("is encrypted"));
  EXPECT_THAT(refusal([&] { read_stored_zip(bytes_of(zip_of({{"a", "1"}, {"a", "2"}}))); }), HasSubstr("twice"));
  EXPECT_THAT(refusal([&] { read_stored_zip(bytes_of("no archive at all, just text")); }), HasSubstr("no directory"));
}

}  // namespace
}  // namespace flux2
