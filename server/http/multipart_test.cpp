#include "server/http/multipart.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "server/http/multipart_head.h"

namespace flux2 {
namespace {

using std::string_literals::operator""s;  // keeps NUL characters

namespace fs = std::filesystem;

class Multipart : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("multipart_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<FormPart> read(std::string_view form, size_t piece, const FormLimits& limits = {}) const {
    FormReader reader("b", limits, folder_);
    for (size_t i = 0; i < form.size(); i += piece) reader.add(form.substr(i, piece));
    return reader.finish();
  }
  size_t files() const {
    return fs::exists(folder_) ? static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()))
                               : 0;
  }
  static std::string content(const FormPart& part) {
    if (part.file.empty()) return part.data;
    std::ostringstream text;
    text << std::ifstream(part.file, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

std::string described(const std::vector<FormPart>& parts) {
  std::string out;
  for (const FormPart& p : parts)
    out += p.name + "|" + p.file_name + "|" + p.content_type + "|" + p.data + "|" + std::to_string(p.bytes) +
           (p.is_file ? "|file\n" : "\n");
  return out;
}

// An empty part, a part that looks like a boundary, quotes, an escaped quote, padding behind a boundary, preamble, epilogue.
const std::string kForm =
    "preamble\r\n--b \t\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na fox\r\n--Bear\r\n-\r\n--"
    "\r\n--b\r\ncontent-disposition:form-data;name=image;filename=\"a \\\"b\\\".png\"\r\nContent-Type: image/png\r\nX-Other: "
    "1\r\n\r\n"
    "\r\n--b\r\nContent-Disposition: form-data; name=\"image[]\"; filename=\"C:\\dir\\%22x%22.png\"\r\n\r\n\r\r\n\n\r\n-\r\n--"
    "\r\n--b--\r\nepilogue\r\n--b\r\n";

TEST_F(Multipart, ReadsPartsInOrder) {
  EXPECT_EQ(described(read(kForm, 10000)),
            "prompt|||a fox\r\n--Bear\r\n-\r\n--|20\n"
            "image|a \"b\".png|image/png||0|file\n"
            "image[]|C:\\dir\\\"x\".png||\r\r\n\n\r\n-\r\n--|11|file\n");
}

TEST_F(Multipart, EverySplitGivesTheSameParts) {
  const std::string form = kForm, whole = described(read(form, form.size()));
  for (size_t piece = 1; piece < form.size(); ++piece) EXPECT_EQ(described(read(form, piece)), whole) << "pieces of " << piece;
  for (size_t cut = 0; cut <= form.size(); ++cut) {
    FormReader reader("b", {}, folder_);
    reader.add(std::string_view(form).substr(0, cut));
    reader.add(std::string_view(form).substr(cut));
    EXPECT_EQ(described(reader.finish()), whole) << "cut at " << cut;
  }
}

TEST_F(Multipart, EveryTruncationIsRefused) {
  const std::string& form = kForm;
  const size_t end = form.find("--b--") + 5;
  for (size_t size = 0; size < end; ++size) {
    FormReader reader("b", {}, folder_);
    reader.add(std::string_view(form).substr(0, size));
    EXPECT_THROW(reader.finish(), Error) << size << " bytes";
  }
}

TEST_F(Multipart, LargePartsGoToFilesAndAreDeletedUnlessTaken) {
  const std::string large(1000, 'x'), small(100, 'y');
  const std::string form = "--b\r\nContent-Disposition: form-data; name=a; filename=a\r\n\r\n" + large +
                           "\r\n--b\r\nContent-Disposition: form-data; name=c\r\n\r\n" + small + "\r\n--b--";
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{99}, form.size()}) {
    const std::vector<FormPart> parts = read(form, piece, {.part_in_memory = 100});
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].data, "");
    EXPECT_EQ(parts[0].bytes, 1000u);
    EXPECT_EQ(parts[0].file.parent_path(), folder_);
    EXPECT_EQ(content(parts[0]), large);
    EXPECT_EQ(parts[1].data, small);
    EXPECT_TRUE(parts[1].file.empty());
    EXPECT_EQ(files(), 1u);
    remove_part_files(parts);
    EXPECT_EQ(files(), 0u);
  }
  {
    FormReader reader("b", {.part_in_memory = 100}, folder_);
    reader.add(std::string_view(form).substr(0, 700));
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u) << "an unfinished form leaves nothing";
}

TEST_F(Multipart, AFolderThatCannotBeWrittenIsAnError) {
  FormReader reader("b", {.part_in_memory = 1}, "/dev/null/x");
  try {
    reader.add("--b\r\nContent-Disposition: form-data; name=a\r\n\r\nabcdefghijk");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::CannotWrite);
  }
}

TEST_F(Multipart, DamagedFormsAreRefused) {
  const std::string head = "--b\r\nContent-Disposition: form-data; name=a\r\n";
  for (const std::string& form : std::vector<std::string>{
           "",
           "--b",
           "--b--x\r\nnever a part",  // ends; it has no parts, which is not this reader's concern
           "--bc\r\n\r\n\r\n--b--",
           "--b\r\n\r\ntext\r\n--b--",
           "--b\nContent-Disposition: form-data; name=a\n\ntext\n--b--",
           "--b\r\nContent-Disposition: form-data\r\n\r\ntext\r\n--b--",
           "--b\r\nContent-Disposition: form-data; name=\"\"\r\n\r\ntext\r\n--b--",
           "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\ntext\r\n--b--",
           "--b\r\nContent-Disposition: form-data; name=\"\xff\"\r\n\r\ntext\r\n--b--",
           "--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\ntext\r\n--b--",
           "--b\r\nContent-Disposition: attachment; name=a\r\n\r\ntext\r\n--b--",
           "--b\r\nContent-Type: text/plain\r\n\r\ntext\r\n--b--",
           head + head.substr(5) + "\r\ntext\r\n--b--",
           head + "no colon\r\n\r\ntext\r\n--b--",
           head + " folded: x\r\n\r\ntext\r\n--b--",
           head + "X: a\nb\r\n\r\ntext\r\n--b--",
           head + "X: a\0b\r\n\r\ntext\r\n--b--"s,
           head + "Content-Transfer-Encoding: base64\r\n\r\ntext\r\n--b--",
           head + "X: " + std::string(17000, 'x') + "\r\n\r\ntext\r\n--b--",
           head + "\r\ntext\r\n--b" + std::string(300, ' ') + "\r\n",
       }) {
    if (form.starts_with("--b--")) {
      EXPECT_TRUE(read(form, 3).empty());
      continue;
    }
    for (const size_t piece : {size_t{1}, form.size() + 1}) EXPECT_THROW(read(form, piece), Error) << form;
  }
}

TEST_F(Multipart, CountsPartsAndHeaders) {
  const std::string part = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n";
  std::string form;
  for (int i = 0; i < 64; ++i) form += part;
  EXPECT_EQ(read(form + "--b--", 4096).size(), 64u);
  EXPECT_THROW(read(form + part + "--b--", 4096), Error);
  std::string headers = "--b\r\nContent-Disposition: form-data; name=a\r\n";
  for (int i = 0; i < 63; ++i) headers += "x: y\r\n";
  EXPECT_EQ(read(headers + "\r\nx\r\n--b--", 100).size(), 1u);
  EXPECT_THROW(read(headers + "x: y\r\n\r\nx\r\n--b--", 100), Error);
}

TEST_F(Multipart, FindsTheBoundary) {
  EXPECT_EQ(form_boundary("multipart/form-data; boundary=----WebKitFormBoundaryAbC"), "----WebKitFormBoundaryAbC");
  EXPECT_EQ(form_boundary("Multipart/Form-Data ; charset=utf-8; BOUNDARY=\"a b:c\""), "a b:c");
  EXPECT_EQ(form_boundary("application/json"), std::nullopt);
  EXPECT_EQ(form_boundary(""), std::nullopt);
  for (const std::string type : {"multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"a",
                                 "multipart/form-data; boundary=\"a \"", "multipart/form-data; boundary=a\"b",
                                 "multipart/form-data; boundary=a; boundary=b", "multipart/form-data; =x"})
    EXPECT_THROW(form_boundary(type), Error) << type;
  EXPECT_THROW(form_boundary("multipart/form-data; boundary=" + std::string(71, 'x')), Error);
}

TEST_F(Multipart, RemovesOldUploadsOnly) {
  fs::create_directories(folder_);
  for (const char* name : {"upload-old", "upload-new", "other"}) std::ofstream(folder_ / name) << "x";
  for (const char* name : {"upload-old", "other"})
    fs::last_write_time(folder_ / name, fs::file_time_type::clock::now() - std::chrono::hours(2));
  remove_stale_uploads(folder_);
  EXPECT_FALSE(fs::exists(folder_ / "upload-old"));
  EXPECT_TRUE(fs::exists(folder_ / "upload-new"));
  EXPECT_TRUE(fs::exists(folder_ / "other"));
  remove_stale_uploads(folder_ / "missing");
}

}  // namespace
}  // namespace flux2
