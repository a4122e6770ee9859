#include "record/picture_metadata.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "image/write_image.h"
#include "record/a1111_text.h"
#include "record/comfy_graph.h"
#include "record/xmp.h"

namespace flux2 {
namespace {

GenerationRecord example() {
  GenerationRecord r;
  r.request.prompt = "a <red> \"fox\" & Ünïcode";
  r.request.negative = "dark";
  r.model = "pico";
  r.model_sha256 = std::string(64, 'a');
  r.quant = "bf16";
  r.request.width = 128, r.request.height = 96, r.request.steps = 20;
  r.request.guidance = 3.5;
  r.request.cfg = 3.5;
  r.request.seed = 9223372036854775807;
  r.index = 2;
  r.request.shift = 2.25;
  r.canvas = PictureRecord{"secret-canvas.png", std::string(64, 'c'), 640, 480};
  r.request.mask_box = {"1,2,3,4"};
  r.request.mask_invert = true;
  r.request.extend = "0,0,16,0";
  r.request.grow = 4, r.request.feather = 6;
  r.request.align = "off";
  r.request.strength = 0.75;
  r.adapters = {{"secret-style", std::string(64, 'd'), 0.8}, {"secret-ink", "", -1}};
  r.references = {{"secret.png", std::string(64, 'b'), 768, 512}};
  r.seconds.text = 0.25;
  return r;
}

void expect_same(const GenerationRecord& a, const GenerationRecord& b) { EXPECT_EQ(to_json(a).dump(), to_json(b).dump()); }

TEST(GenerationRecord, RoundTripsAsJson) {
  GenerationRecord r = example();
  r.seconds = {};
  expect_same(record_from_json(to_json(r)), r);
  EXPECT_EQ(record_from_json(to_json(r)).references, r.references);
  EXPECT_EQ(record_from_json(to_json(r)).request.mask_box, r.request.mask_box);
  EXPECT_EQ(to_json(r)["mask"]["aligned"], false);
  EXPECT_EQ(record_from_json(to_json(r)).adapters, r.adapters);
  EXPECT_NE(to_a1111(r).find("Lora hashes: \"secret-style: dddddddddd, secret-ink: \""), std::string::npos) << to_a1111(r);
  EXPECT_EQ(to_json(r)["v"], 1);
  EXPECT_THROW(record_from_json(Json{{"steps", "many"}}), Error);
}

TEST(GenerationRecord, PrivateJsonKeepsHashesOnly) {
  const std::string text = to_json(example(), true).dump();
  EXPECT_EQ(text.find("fox"), std::string::npos);
  EXPECT_EQ(text.find("dark"), std::string::npos);
  EXPECT_EQ(text.find("pico"), std::string::npos);
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_NE(text.find("aaaa"), std::string::npos);
  EXPECT_NE(text.find("bbbb"), std::string::npos);
}

TEST(PictureMetadata, RoundTripsInEveryFormat) {
  GenerationRecord r = example();
  r.seconds = {};
  const Image image(16, 16, 3);
  for (const ImageFormat format : available_formats()) {
    if (format == ImageFormat::Ppm) continue;  // holds none
    const auto bytes = encode_image(image, format, picture_metadata(r, {}, format));
    const ImageMetadata back = read_metadata(bytes);
    const auto found = find_record(back);
    ASSERT_TRUE(found) << name_of(format);
    EXPECT_EQ(found->source, "flux2");
    expect_same(found->record, r);
    EXPECT_NE(back.xmp.find("trainedAlgorithmicMedia"), std::string::npos);
    const std::string* parameters = back.find_text("parameters");
    EXPECT_EQ(parameters ? *parameters : back.exif_comment, to_a1111(r)) << name_of(format);
  }
}

TEST(PictureMetadata, NoneKeepsOnlyTheProvenance) {
  MetadataChoice choice = MetadataChoice::parse("none");
  for (const ImageFormat format : {ImageFormat::Png, ImageFormat::Jpeg}) {
    choice.provenance = true;
    ImageMetadata metadata = picture_metadata(example(), choice, format);
    EXPECT_TRUE(metadata.text.empty());
    EXPECT_TRUE(metadata.exif_comment.empty());
    EXPECT_NE(metadata.xmp.find("DigitalSourceType"), std::string::npos);
    EXPECT_FALSE(find_record(metadata));
    choice.provenance = false;
    EXPECT_EQ(picture_metadata(example(), choice, format), ImageMetadata{});
  }
  EXPECT_THROW(MetadataChoice::parse("exif"), Error);
  EXPECT_THROW(MetadataChoice::parse("json,none"), Error);
}

TEST(PictureMetadata, CopiesKeepWhatIsAllowed) {
  const std::string words = "a fox\nSteps: 4, Seed: 7";
  ImageMetadata png, jpeg;
  png.text = {{"parameters", words}, {"workflow", "{}"}};
  png.xmp = jpeg.xmp = xmp_packet({});
  jpeg.exif_comment = words;
  jpeg.make = "someone";
  const MetadataChoice all;
  EXPECT_EQ(copied_metadata(png, all, ImageFormat::Png), png);
  EXPECT_EQ(copied_metadata(jpeg, all, ImageFormat::WebP), jpeg);
  EXPECT_EQ(copied_metadata(png, all, ImageFormat::Jpeg).exif_comment, words);
  const ImageMetadata as_png = copied_metadata(jpeg, all, ImageFormat::Png);
  ASSERT_TRUE(as_png.find_text("parameters"));
  EXPECT_EQ(*as_png.find_text("parameters"), words);
  EXPECT_EQ(as_png.exif_comment, "");
  ImageMetadata photo;
  photo.exif_comment = "our garden";
  EXPECT_EQ(copied_metadata(photo, all, ImageFormat::Png), photo);

  MetadataChoice none = MetadataChoice::parse("none"), secret;
  secret.is_private = true;
  for (const MetadataChoice& choice : {none, secret})
    for (const ImageMetadata& from : {png, jpeg}) {
      const ImageMetadata kept = copied_metadata(from, choice, ImageFormat::Png);
      EXPECT_TRUE(says_generated(kept.xmp));
      EXPECT_TRUE(kept.text.empty() && kept.exif_comment.empty() && kept.make.empty());
    }
  EXPECT_EQ(copied_metadata(photo, none, ImageFormat::Jpeg), ImageMetadata{});
  none.provenance = false;
  EXPECT_EQ(copied_metadata(png, none, ImageFormat::Png), ImageMetadata{});
  EXPECT_FALSE(find_record(copied_metadata(png, MetadataChoice::parse("json"), ImageFormat::Png)));
}

TEST(PictureMetadata, ReadsInvokeAi) {
  ImageMetadata metadata;
  metadata.text = {{"invokeai_metadata",
                    R"({"positive_prompt":"a cat","seed":7,"steps":4,"width":512,"height":256,"model":{"name":"klein"}})"}};
  const auto found = find_record(metadata);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, "invokeai");
  EXPECT_EQ(found->record.request.prompt, "a cat");
  EXPECT_EQ(found->record.request.seed, 7);
  EXPECT_EQ(found->record.model, "klein");
}

TEST(PictureMetadata, DamagedTextsAreIgnored) {
  ImageMetadata metadata;
  metadata.text = {{"flux2", "{\"seed\":"}, {"prompt", "[1,2"}, {"invokeai_metadata", "{\"seed\":\"x\"}"}};
  EXPECT_FALSE(find_record(metadata));
}

TEST(ComfyGraph, RoundTripsInApiForm) {
  const GenerationRecord r = example(), back = record_from_comfy(comfy_graphs(r).api);
  EXPECT_EQ(back.request.prompt, r.request.prompt);
  EXPECT_EQ(back.request.negative, r.request.negative);
  EXPECT_EQ(back.request.seed, r.request.seed);
  EXPECT_EQ(back.request.steps, r.request.steps);
  EXPECT_EQ(back.request.width, r.request.width);
  EXPECT_EQ(back.request.height, r.request.height);
  EXPECT_EQ(back.request.cfg, r.request.cfg);
  EXPECT_EQ(back.model, "pico.safetensors");
}

TEST(ComfyGraph, UiFormIsConnected) {
  const Json ui = comfy_graphs(example()).ui;
  for (const Json& link : ui["links"]) {
    const Json& target = ui["nodes"][link[3].get<size_t>() - 1];
    EXPECT_EQ(target["inputs"][link[4].get<size_t>()]["link"], link[0]);
    const Json& source = ui["nodes"][link[1].get<size_t>() - 1];
    EXPECT_EQ(source["outputs"][0]["type"], link[5]);
  }
}

TEST(ComfyGraph, ReadsAKSampler) {
  const Json api = parse_json(R"({
    "3":{"class_type":"KSampler","inputs":{"seed":5,"steps":20,"cfg":7.0,"sampler_name":"euler","model":["4",0],
         "positive":["6",0],"negative":["7",0],"latent_image":["5",0]}},
    "4":{"class_type":"CheckpointLoaderSimple","inputs":{"ckpt_name":"m.safetensors"}},
    "5":{"class_type":"EmptyLatentImage","inputs":{"width":640,"height":480,"batch_size":1}},
    "6":{"class_type":"CLIPTextEncode","inputs":{"text":"yes","clip":["4",1]}},
    "7":{"class_type":"CLIPTextEncode","inputs":{"text":"no","clip":["4",1]}}})");
  const GenerationRecord r = record_from_comfy(api);
  EXPECT_EQ(r.request.prompt, "yes");
  EXPECT_EQ(r.request.negative, "no");
  EXPECT_EQ(r.request.width, 640);
  EXPECT_EQ(r.model, "m.safetensors");
  EXPECT_THROW(record_from_comfy(Json::object()), Error);
  const Json loop = parse_json(R"({"1":{"class_type":"KSampler","inputs":{"model":["1",0]}}})");
  EXPECT_EQ(record_from_comfy(loop).model, "");
}

// A chain of nodes, of which the last has the values.
std::string long_graph(int length) {
  std::string text = R"({"0":{"class_type":"KSampler","inputs":{"positive":["1",0],"model":["1",0]}})";
  for (int i = 1; i < length; ++i)
    text += fmt::format(R"(,"{}":{{"class_type":"N","inputs":{{"x":["{}",0],"positive":["{}",0]}}}})", i, i + 1, i + 1);
  return text + fmt::format(R"(,"{}":{{"class_type":"CLIPTextEncode","inputs":{{"text":"far away","steps":9}}}}}})", length);
}

TEST(ComfyGraph, AChainMayBeAnyLength) {
  const Json graph = parse_json(long_graph(100'000), {.bytes = 1 << 30, .keys = 10'000'000, .values = 10'000'000});
  const std::clock_t began = std::clock();  // of the processor: other programs do not count
  const GenerationRecord r = record_from_comfy(graph);
  EXPECT_EQ(r.request.prompt, "far away");
  EXPECT_EQ(r.request.steps, 9);
  EXPECT_LT((std::clock() - began) / CLOCKS_PER_SEC, 10) << "a search for every node takes minutes";
  ImageMetadata metadata;
  metadata.text = {{"prompt", long_graph(100'000)}};
  EXPECT_FALSE(find_record(metadata)) << "more keys than are allowed";
  metadata.text = {{"prompt", long_graph(1000)}};
  ASSERT_TRUE(find_record(metadata));
  EXPECT_EQ(find_record(metadata)->record.request.prompt, "far away");
}

TEST(GenerationRecord, AWrongTypeIsReportedInOurWords) {
  for (const char* text : {R"({"app":7})", R"({"references":[{"width":1e30}]})", R"({"references":[{"width":99999999999}]})",
                           R"({"loras":[3]})", "[]", R"({"model":{"id":[]}})"})
    try {
      record_from_json(parse_json(text));
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::BadFile) << text;
      EXPECT_THAT(e.what(), testing::HasSubstr("the generation settings cannot be read: "));
      EXPECT_THAT(e.what(), testing::Not(testing::HasSubstr("json.exception"))) << text;
    }
}

TEST(Xmp, EscapesTheRecord) {
  const std::string json = R"({"prompt":"<a> & \"b\" &amp;"})";
  EXPECT_EQ(own_json_of_xmp(xmp_packet({.own_json = json})), json);
  EXPECT_EQ(own_json_of_xmp("<flux2:record>cut"), "");
  EXPECT_TRUE(says_generated(xmp_packet({})));
  EXPECT_TRUE(says_generated(xmp_packet({.composite = true})));
  EXPECT_FALSE(says_generated(xmp_packet({.generated = false})));
}

}  // namespace
}  // namespace flux2
