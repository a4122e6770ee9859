#include "hub/remote/known_files.h"

#include <algorithm>
#include <cctype>

namespace flux2 {

namespace {

constexpr bool kOpen = false, kGated = true;

constexpr KnownFile kFiles[] = {
    // Transformers as their makers publish them.
    {"black-forest-labs/FLUX.2-klein-4B", "flux-2-klein-4b.safetensors", 7751105712, true,
     "ec3d4e733a771f61c052fb4856c48b336c55eaf2c65487c2a1faeb9bbda7a343", kOpen},
    {"black-forest-labs/FLUX.2-klein-base-4B", "flux-2-klein-base-4b.safetensors", 7751105712, true,
     "9c5fed22b76baea749d88fc2abe3ad53245e7b21a0d353a762665eea00043b92", kOpen},
    {"black-forest-labs/FLUX.2-klein-4b-fp8", "flux-2-klein-4b-fp8.safetensors", 4070624520, true,
     "97ed34fe0567e436200f2faee3939b88f2b5d99f8af2a4dc16532c4245c0ccb6", kOpen},
    {"black-forest-labs/FLUX.2-klein-base-4b-fp8", "flux-2-klein-base-4b-fp8.safetensors", 4089498488, true,
     "44bab3a86fe98b85d21dd2a4729ebdc3ae51fb8a39f76e457e18c724219e6840", kOpen},
    {"black-forest-labs/FLUX.2-klein-4b-nvfp4", "flux-2-klein-4b-nvfp4.safetensors", 2460413488, true,
     "d8c5007b6a3bbbdfd38538bbcef5101a55dfde81894f58d2e3c8701cdef3542b", kOpen},
    {"black-forest-labs/FLUX.2-klein-base-4b-nvfp4", "flux-2-klein-base-4b-nvfp4.safetensors", 2500000000, false, "", kOpen},
    {"black-forest-labs/FLUX.2-klein-9B", "flux-2-klein-9b.safetensors", 18157185168, true,
     "0975d6b77b5f510b99547d6724a208e36527df654e8f6134f59ece3f9f30da58", kGated},
    {"black-forest-labs/FLUX.2-klein-base-9B", "flux-2-klein-base-9b.safetensors", 18157185168, false,
     "4a54fad7f5f741b99eee217198daac20b8d8e515e2a1f5b064fd51cf074f95bd", kGated},
    {"black-forest-labs/FLUX.2-klein-9b-kv", "flux-2-klein-9b-kv.safetensors", 18160000000, false, "", kGated},
    {"black-forest-labs/FLUX.2-klein-9b-fp8", "flux-2-klein-9b-fp8.safetensors", 9433061528, true,
     "865ba09f5b4c3cbd3468a4bd3acb9fcb2f8740c54317482f0bcd4ed1d3655cee", kGated},
    {"black-forest-labs/FLUX.2-klein-base-9b-fp8", "flux-2-klein-base-9b-fp8.safetensors", 9567278472, true,
     "a9f5028c24a7a96f4f45beb883aad287d9bccc246227a6803edc898ddda42cf4", kGated},
    {"black-forest-labs/FLUX.2-klein-9b-kv-fp8", "flux-2-klein-9b-kv-fp8.safetensors", 9818935984, true,
     "33f7da5625a00798349a719742999d3c7dd20c1a7eda14663922c363640728f1", kGated},
    {"black-forest-labs/FLUX.2-klein-9b-nvfp4", "flux-2-klein-9b-nvfp4.safetensors", 5760960048, true,
     "5c72214496dd278f721a112e1bd1585fffed487bc0831c894bcbf30d12e9ee48", kGated},
    {"black-forest-labs/FLUX.2-klein-base-9b-nvfp4", "flux-2-klein-base-9b-nvfp4.safetensors", 5809193808, true,
     "730d6bdbd5069cd4cd263cfdc4801d0d06ca14457b903baa5d953a8c2f9e84c9", kGated},
    {"black-forest-labs/FLUX.2-dev", "flux2-dev.safetensors", 64446600000, false, "", kGated},
    {"black-forest-labs/FLUX.2-dev", "ae.safetensors", 336000000, false, "", kGated},
    {"black-forest-labs/FLUX.2-dev-NVFP4", "flux2-dev-nvfp4.safetensors", 20000000000, false, "", kGated},
    {"black-forest-labs/FLUX.2-dev-NVFP4", "flux2-dev-nvfp4-mixed.safetensors", 0, false, "", kGated},
    {"black-forest-labs/FLUX.2-small-decoder", "full_encoder_small_decoder.safetensors", 249519092, true,
     "ea4273f02d1fafbf8e1d1c2cf6018ed8748652eb0bf34f2dd91171f16f15ab62", kOpen},

    // Split files for ComfyUI. The misspelling of vae-text-encorder is theirs.
    {"Comfy-Org/flux2-dev", "split_files/diffusion_models/flux2_dev_fp8mixed.safetensors", 35455599592, true,
     "863a82e4ff950a42a6b0e80bea824828f129eb1a8fbbdbd9e8cb29859127b486", kOpen},
    {"Comfy-Org/flux2-dev", "split_files/text_encoders/mistral_3_small_flux2_bf16.safetensors", 35600000000, false, "", kOpen},
    {"Comfy-Org/flux2-dev", "split_files/text_encoders/mistral_3_small_flux2_fp8.safetensors", 18034640095, true, "", kOpen},
    {"Comfy-Org/flux2-dev", "split_files/text_encoders/mistral_3_small_flux2_fp4_mixed.safetensors", 12275678071, true,
     "1ee1ff334d78228d73049ef0ee4fcd21c1700536b5a45c06547af057f92463a7", kOpen},
    {"Comfy-Org/flux2-dev", "split_files/vae/flux2-vae.safetensors", 336213556, true,
     "d64f3a68e1cc4f9f4e29b6e0da38a0204fe9a49f2d4053f0ec1fa1ca02f9c4b5", kOpen},
    {"Comfy-Org/flux2-dev", "split_files/loras/Flux_2-Turbo-LoRA_comfyui.safetensors", 2760814880, true, "", kOpen},
    {"Comfy-Org/flux2-klein-4B", "split_files/vae/flux2-vae.safetensors", 336211292, true,
     "868fe7b343cc8f3a19dbcfcafbc3d5f888802be3f89bd81b65b3621a066ce8f3", kOpen},
    {"Comfy-Org/flux2-klein-4B", "split_files/text_encoders/qwen_3_4b.safetensors", 8044982048, true,
     "6c671498573ac2f7a5501502ccce8d2b08ea6ca2f661c458e708f36b36edfc5a", kOpen},
    {"Comfy-Org/flux2-klein-4B", "split_files/text_encoders/qwen_3_4b_fp4_flux2.safetensors", 3848213998, true,
     "3eab03a77adb0ee5304a4e677d5c10ac22f9049c1d7c894adca4f8bb39206ca8", kOpen},
    {"Comfy-Org/flux2-klein-9B", "split_files/vae/flux2-vae.safetensors", 336211292, true,
     "868fe7b343cc8f3a19dbcfcafbc3d5f888802be3f89bd81b65b3621a066ce8f3", kOpen},
    {"Comfy-Org/flux2-klein-9B", "split_files/text_encoders/qwen_3_8b.safetensors", 16381517176, true,
     "f0ff9239d56269ca1d05e5f86da6a79fac111af464955681f11c7ab0ec5ef6c1", kOpen},
    {"Comfy-Org/flux2-klein-9B", "split_files/text_encoders/qwen_3_8b_fp8mixed.safetensors", 8664848742, true,
     "abad16806e0cbabc54e0325d6565847443fe396d5f0be38bb3cd3fe75a1201d6", kOpen},
    {"Comfy-Org/flux2-klein-9B", "split_files/text_encoders/qwen_3_8b_fp4mixed.safetensors", 0, false,
     "bbf16f981d98e16d080c566134814c4e9f6aadd0d0e1383c60bc44ba939d760d", kOpen},
    {"Comfy-Org/vae-text-encorder-for-flux-klein-4b", "split_files/vae/flux2-vae.safetensors", 336211292, true,
     "868fe7b343cc8f3a19dbcfcafbc3d5f888802be3f89bd81b65b3621a066ce8f3", kOpen},
    {"Comfy-Org/vae-text-encorder-for-flux-klein-4b", "split_files/text_encoders/qwen_3_4b.safetensors", 8044982048, true,
     "6c671498573ac2f7a5501502ccce8d2b08ea6ca2f661c458e708f36b36edfc5a", kOpen},
    {"Comfy-Org/vae-text-encorder-for-flux-klein-9b", "split_files/vae/flux2-vae.safetensors", 336211292, true,
     "868fe7b343cc8f3a19dbcfcafbc3d5f888802be3f89bd81b65b3621a066ce8f3", kOpen},
    {"Comfy-Org/vae-text-encorder-for-flux-klein-9b", "split_files/text_encoders/qwen_3_8b.safetensors", 16381517176, true,
     "f0ff9239d56269ca1d05e5f86da6a79fac111af464955681f11c7ab0ec5ef6c1", kOpen},

    // GGUF; names and sizes change, and the listing decides.
    {"city96/FLUX.2-dev-gguf", "flux2-dev-Q4_K_M.gguf", 20082414560, true, "", kOpen},
    {"unsloth/FLUX.2-klein-4B-GGUF", "flux-2-klein-4b-Q5_K_M.gguf", 3073368640, true, "", kOpen},
    {"unsloth/FLUX.2-klein-4B-GGUF", "flux-2-klein-4b-Q4_K_M.gguf", 2600000000, false, "", kOpen},
    {"unsloth/FLUX.2-klein-4B-GGUF", "flux-2-klein-4b-Q8_0.gguf", 4300000000, false, "", kOpen},
    {"unsloth/FLUX.2-klein-9B-GGUF", "flux-2-klein-9b-Q4_K_M.gguf", 5800000000, false, "", kOpen},
    {"unsloth/FLUX.2-klein-9B-GGUF", "flux-2-klein-9b-Q8_0.gguf", 10000000000, false, "", kOpen},
    {"leejet/FLUX.2-klein-4B-GGUF", "flux-2-klein-4b-Q4_0.gguf", 0, false, "", kOpen},
    {"leejet/FLUX.2-klein-4B-GGUF", "flux-2-klein-4b-Q8_0.gguf", 0, false, "", kOpen},
    {"unsloth/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf", 0, false, "", kOpen},
    {"unsloth/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf", 0, false, "", kOpen},
    {"unsloth/Mistral-Small-3.2-24B-Instruct-2506-GGUF", "Mistral-Small-3.2-24B-Instruct-2506-Q4_K_M.gguf", 0, false, "", kOpen},
};

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::span<const KnownFile> known_files() { return kFiles; }

const KnownFile* find_known_file(std::string_view sha256) {
  const auto found = std::ranges::find_if(kFiles, [&](const KnownFile& f) { return !sha256.empty() && sha256 == f.sha256; });
  return found == std::end(kFiles) ? nullptr : &*found;
}

std::vector<KnownFile> known_files_of(std::string_view repository) {
  std::vector<KnownFile> found;
  std::ranges::copy_if(kFiles, std::back_inserter(found),
                       [&](const KnownFile& f) { return same_letters(f.repository, repository); });
  return found;
}

}  // namespace flux2
