#include "app/adapter_references.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "hub/adapter_tools.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class AdapterReferences : public testing::Test {
 protected:
  AdapterReferences() {
    std::string pattern = (std::filesystem::temp_directory_path() / "flux2-rules-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
    model.id = "some-model";
    resolved.request.references.push_back(std::make_shared<Planes>());
  }
  ~AdapterReferences() override { std::filesystem::remove_all(folder); }

  // An adapter whose metadata names this rule; none if it is empty.
  void use(const std::string& rule) {
    const std::filesystem::path file = folder / "style.safetensors";
    std::map<std::string, std::string> metadata;
    if (!rule.empty()) metadata["ss_flux2_references"] = rule;
    const std::vector<float> values = {1};
    save_tensors(file, {{"lora_unet_x.alpha", Tensor::host_copy(values.data(), DType::F32, {1})}}, metadata);
    resolved.adapters = {AdapterChoice{.path = file}};
  }
  std::vector<std::string> warnings() {
    std::vector<std::string> texts;
    follow_adapters(resolved, model, Log([&](LogLevel level, const std::string& text) {
                      if (level == LogLevel::Warning) texts.push_back(text);
                    }));
    return texts;
  }

  std::filesystem::path folder;
  ModelFiles model;
  ResolvedRequest resolved;
};

TEST_F(AdapterReferences, AtTimeZeroAreTreatedSo) {
  use("zero_cond_t");
  EXPECT_THAT(warnings(), IsEmpty());
  EXPECT_TRUE(resolved.request.references_at_zero);
  EXPECT_FALSE(resolved.request.reuse_reference_keys);
}

// Regions cannot have such references; check_regions() refuses them.
TEST_F(AdapterReferences, OfRegionsAloneFollowTheRuleToo) {
  use("zero_cond_t");
  resolved.request.references.clear();
  EXPECT_THAT(warnings(), IsEmpty());
  EXPECT_FALSE(resolved.request.references_at_zero) << "there is none";
  resolved.request.regions.resize(2);
  resolved.request.regions[1].references.push_back(std::make_shared<Planes>());
  EXPECT_THAT(warnings(), IsEmpty());
  EXPECT_TRUE(resolved.request.references_at_zero);
}

TEST_F(AdapterReferences, OfKvAdaptersAreWarnedAboutOnOtherModels) {
  use("kv");
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("style.safetensors was trained for reference images that see only each other")));
  EXPECT_FALSE(resolved.request.references_at_zero);
  resolved.request.reuse_reference_keys = true;
  EXPECT_THAT(warnings(), IsEmpty());
  resolved.request.reuse_reference_keys = false;
  model.kv = true;
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(AdapterReferences, OfOtherAdaptersAndMissingFilesAreLeftAlone) {
  use("");
  EXPECT_THAT(warnings(), IsEmpty());
  resolved.adapters = {AdapterChoice{.path = folder / "missing.safetensors"}};
  EXPECT_THAT(warnings(), IsEmpty());
  EXPECT_FALSE(resolved.request.references_at_zero);
}

}  // namespace
}  // namespace flux2
