#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace flux2 {

// The values of the tokens in an output pattern.
struct OutputFields {
  uint64_t seed = 0;
  int index = 0;           // position among the images of the run
  std::string date, time;  // YYYY-MM-DD, HHMMSS
  std::string model, prompt, job;
  int width = 0, height = 0, steps = 0;
  std::string extension;  // without dot
};

// The default patterns: for a run without a target, and for a target that is a folder.
inline constexpr std::string_view kDefaultOutput = "outputs/{date}/{seq:05}-{seed}.{ext}";
inline constexpr std::string_view kFolderPattern = "{seq:05}-{seed}.{ext}";

// Whether `target` contains tokens ({seq}, {seed}, …, %d, %05d), so that each image gets its own name.
bool is_output_pattern(std::string_view target);

// The path for one image. `target` comes from the user and can be a file, a folder or a pattern. A file name is used as it is; if
// the run makes `several` images, -01, -02, … is added before the extension. A folder (it exists, or the name ends in /) gets
// numbered files. A pattern is filled in and never gives the name of an existing file. {seq[:w]} is one more than the highest
// number that existing files have at this position. {prompt[:n]} is the first n characters of the prompt, made safe for file
// names. Throws InvalidArgument for an unknown token.
std::filesystem::path choose_output(const std::string& target, const OutputFields& fields, bool several);

// Whether choose_output() chooses the name itself, so that it must not be the name of an existing file.
bool chooses_name(const std::string& target);

// The path itself if nothing has that name, else the first free one of image-2.png, image-3.png, …
std::filesystem::path free_name(const std::filesystem::path& path);

// "image.png", 2 → "image-02.png"
std::filesystem::path numbered(const std::filesystem::path& path, int number);

}  // namespace flux2
