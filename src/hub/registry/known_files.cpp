#include "hub/registry/known_files.h"

namespace flux2 {

namespace {

// Sizes and hashes as the repositories list them.
constexpr KnownFile kFiles[] = {
    {"ec3d4e733a771f61c052fb4856c48b336c55eaf2c65487c2a1faeb9bbda7a343", "black-forest-labs/FLUX.2-klein-4B",
     "flux-2-klein-4b.safetensors", 7751105712, "flux.2-klein-4b", false},
    {"9c5fed22b76baea749d88fc2abe3ad53245e7b21a0d353a762665eea00043b92", "black-forest-labs/FLUX.2-klein-base-4B",
     "flux-2-klein-base-4b.safetensors", 7751105712, "flux.2-klein-base-4b", false},
    {"97ed34fe0567e436200f2faee3939b88f2b5d99f8af2a4dc16532c4245c0ccb6", "black-forest-labs/FLUX.2-klein-4b-fp8",
     "flux-2-klein-4b-fp8.safetensors", 4070624520, "flux.2-klein-4b", false},
    {"44bab3a86fe98b85d21dd2a4729ebdc3ae51fb8a39f76e457e18c724219e6840", "black-forest-labs/FLUX.2-klein-base-4b-fp8",
     "flux-2-klein-base-4b-fp8.safetensors", 4089498488, "flux.2-klein-base-4b", false},
    {"d8c5007b6a3bbbdfd38538bbcef5101a55dfde81894f58d2e3c8701cdef3542b", "black-forest-labs/FLUX.2-klein-4b-nvfp4",
     "flux-2-klein-4b-nvfp4.safetensors", 2460413488, "flux.2-klein-4b", false},
    {"0975d6b77b5f510b99547d6724a208e36527df654e8f6134f59ece3f9f30da58", "black-forest-labs/FLUX.2-klein-9B",
     "flux-2-klein-9b.safetensors", 18157185168, "flux.2-klein-9b", true},
    {"4a54fad7f5f741b99eee217198daac20b8d8e515e2a1f5b064fd51cf074f95bd", "black-forest-labs/FLUX.2-klein-base-9B",
     "flux-2-klein-base-9b.safetensors", 18157185168, "flux.2-klein-base-9b", true},
    {"865ba09f5b4c3cbd3468a4bd3acb9fcb2f8740c54317482f0bcd4ed1d3655cee", "black-forest-labs/FLUX.2-klein-9b-fp8",
     "flux-2-klein-9b-fp8.safetensors", 9433061528, "flux.2-klein-9b", true},
    {"a9f5028c24a7a96f4f45beb883aad287d9bccc246227a6803edc898ddda42cf4", "black-forest-labs/FLUX.2-klein-base-9b-fp8",
     "flux-2-klein-base-9b-fp8.safetensors", 9567278472, "flux.2-klein-base-9b", true},
    {"33f7da5625a00798349a719742999d3c7dd20c1a7eda14663922c363640728f1", "black-forest-labs/FLUX.2-klein-9b-kv-fp8",
     "flux-2-klein-9b-kv-fp8.safetensors", 9818935984, "flux.2-klein-9b-kv", true},
    {"5c72214496dd278f721a112e1bd1585fffed487bc0831c894bcbf30d12e9ee48", "black-forest-labs/FLUX.2-klein-9b-nvfp4",
     "flux-2-klein-9b-nvfp4.safetensors", 5760960048, "flux.2-klein-9b", true},
    {"730d6bdbd5069cd4cd263cfdc4801d0d06ca14457b903baa5d953a8c2f9e84c9", "black-forest-labs/FLUX.2-klein-base-9b-nvfp4",
     "flux-2-klein-base-9b-nvfp4.safetensors", 5809193808, "flux.2-klein-base-9b", true},
    {"ea4273f02d1fafbf8e1d1c2cf6018ed8748652eb0bf34f2dd91171f16f15ab62", "black-forest-labs/FLUX.2-small-decoder",
     "full_encoder_small_decoder.safetensors", 249519092, "", false},
    {"863a82e4ff950a42a6b0e80bea824828f129eb1a8fbbdbd9e8cb29859127b486", "Comfy-Org/flux2-dev",
     "split_files/diffusion_models/flux2_dev_fp8mixed.safetensors", 35455599592, "flux.2-dev", true},
    {"d64f3a68e1cc4f9f4e29b6e0da38a0204fe9a49f2d4053f0ec1fa1ca02f9c4b5", "Comfy-Org/flux2-dev",
     "split_files/vae/flux2-vae.safetensors", 336213556, "", false},
    {"868fe7b343cc8f3a19dbcfcafbc3d5f888802be3f89bd81b65b3621a066ce8f3", "Comfy-Org/flux2-klein-4B",
     "split_files/vae/flux2-vae.safetensors", 336211292, "", false},
    {"6c671498573ac2f7a5501502ccce8d2b08ea6ca2f661c458e708f36b36edfc5a", "Comfy-Org/flux2-klein-4B",
     "split_files/text_encoders/qwen_3_4b.safetensors", 8044982048, "", false},
    {"3eab03a77adb0ee5304a4e677d5c10ac22f9049c1d7c894adca4f8bb39206ca8", "Comfy-Org/flux2-klein-4B",
     "split_files/text_encoders/qwen_3_4b_fp4_flux2.safetensors", 3848213998, "", false},
    {"f0ff9239d56269ca1d05e5f86da6a79fac111af464955681f11c7ab0ec5ef6c1", "Comfy-Org/flux2-klein-9B",
     "split_files/text_encoders/qwen_3_8b.safetensors", 16381517176, "", false},
    {"abad16806e0cbabc54e0325d6565847443fe396d5f0be38bb3cd3fe75a1201d6", "Comfy-Org/flux2-klein-9B",
     "split_files/text_encoders/qwen_3_8b_fp8mixed.safetensors", 8664848742, "", false},
};

}  // namespace

const KnownFile* known_file(std::string_view sha256) {
  for (const KnownFile& f : kFiles)
    if (sha256 == f.sha256) return &f;
  return nullptr;
}

}  // namespace flux2
