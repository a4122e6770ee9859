#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace flux2 {

// What the tokens of an output pattern stand for.
struct OutputFields {
  uint64_t seed = 0;
  int index = 0;           // position among the pictures of the run
  std::string date, time;  // YYYY-MM-DD, HHMMSS
  std::string model, prompt, job;
  int width = 0, height = 0, steps = 0;
  std::string extension;  // without dot
};

// The default patterns: without a target, and for a folder that the user named.
inline constexpr std::string_view kDefaultOutput = "outputs/{date}/{seq:05}-{seed}.{ext}";
inline constexpr std::string_view kFolderPattern = "{seq:05}-{seed}.{ext}";

// Whether `target` contains tokens ({seq}, {seed}, …, %d, %05d), so that each image gets its own name.
bool is_output_pattern(std::string_view target);

// The path for one picture. `target` is what the user gave: a file is taken as it is, with -01, -02, … before the
// extension when the run makes `several`; a folder (it exists or ends in /) gets numbered files; a pattern is
// filled in and never names a file that exists. {seq[:w]} is one more than the highest number in its place,
// {prompt[:n]} the first n characters made safe. Throws InvalidArgument for an unknown token.
std::filesystem::path choose_output(const std::string& target, const OutputFields& fields, bool several);

// "picture.png", 2 → "picture-02.png"
std::filesystem::path numbered(const std::filesystem::path& path, int number);

}  // namespace flux2
