#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace flux2::test {

// Small images with captions for training: NAME0.png with "NAME number 0" in NAME0.txt, and so on, each of 64x64 pixels. `draw`
// sets the three values of a pixel.
using DrawPixel = std::function<void(int image, int x, int y, uint8_t* rgb)>;
void write_training_images(const std::filesystem::path& folder, const std::string& name, int count, const DrawPixel& draw);

// "bars": two colours, whose border and tint differ from image to image.
void write_bars(const std::filesystem::path& folder, int count);

// The values of a trained file by name, those of floating-point tensors. The metadata hold times, which differ from run to run.
std::map<std::string, std::vector<float>> trained_values(const std::filesystem::path& file);

}  // namespace flux2::test
