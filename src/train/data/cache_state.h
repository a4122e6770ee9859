#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/data/caption_cache.h"
#include "train/data/dataset.h"
#include "train/data/latent_cache.h"

// Whether cache files still belong to the images and captions they were made from.
namespace flux2 {

// Why a latent file does not fit the configuration; empty if it does.
std::string stale_reason(const DatasetConfig& config, const LatentSummary& found);

// What a latent file was made from. It is kept in the file's metadata.
struct SourceMarks {
  std::string encoder;   // the autoencoder, and the type of the latents
  std::string stamp;     // a hash over settings, and over size and time of the files
  std::string contents;  // a hash over settings, and over the bytes of the files
};
SourceMarks source_marks(const DatasetConfig& config, const DatasetItem& item, const std::string& encoder, bool with_contents);
std::map<std::string, std::string> as_notes(const SourceMarks& marks);

// The same for a text file.
std::map<std::string, std::string> caption_notes(const std::vector<std::string>& captions, const std::string& encoder);

// How strictly files are compared.
enum class CacheCheck {
  Contents,  // the same images or captions and the same encoder
  AnyForm,   // the same, with latents of any type
  Fits,      // any file that fits the configuration
};

// Whether the file holds the latents of this item. Files of musubi-tuner have no marks: those count that are not older than the
// images.
bool is_current(const std::filesystem::path& latent_file, const DatasetConfig& config, const DatasetItem& item,
                const CacheModel& model, const std::string& encoder, CacheCheck how);

// Whether the file holds the states of these texts.
bool is_current(const std::filesystem::path& text_file, const std::vector<std::string>& captions, const CacheModel& model,
                const std::string& encoder, CacheCheck how);

}  // namespace flux2
