#include "backend/cpu/cpu_features.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

namespace flux2 {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of the first "key : value" line of /proc/cpuinfo, or nothing.
std::string cpuinfo_value(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    const size_t start = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return {};
}

// ARM machines print only numbers for who made the core and which one it is.
std::string arm_core_name() {
  static constexpr std::array<std::pair<const char*, const char*>, 13> kParts = {{
      {"0xd08", "Cortex-A72"},
      {"0xd0b", "Cortex-A76"},
      {"0xd0c", "Neoverse-N1"},
      {"0xd40", "Neoverse-V1"},
      {"0xd41", "Cortex-A78"},
      {"0xd44", "Cortex-X1"},
      {"0xd48", "Cortex-X2"},
      {"0xd49", "Neoverse-N2"},
      {"0xd4f", "Neoverse-V2"},
      {"0xd83", "Neoverse-V3AE"},
      {"0xd84", "Neoverse-V3"},
      {"0xd8e", "Neoverse-N3"},
      {"0xd4d", "Cortex-A715"},
  }};
  if (cpuinfo_value("CPU implementer") != "0x41") return {};
  const std::string part = cpuinfo_value("CPU part");
  for (const auto& [number, name] : kParts)
    if (part == number) return name;
  return {};
}

// Processors the container's quota is worth: "max 100000" or "150000 100000" in cgroup v2.
int quota_processors() {
  std::istringstream text(first_line("/sys/fs/cgroup/cpu.max"));
  double quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

}  // namespace

std::vector<CpuLevel> levels_of(const CpuFeatures& all) {
  using F = CpuFeatures;
  std::vector<CpuLevel> levels = {{"scalar", {}}};
  CpuFeatures used;
  used.slow_avx512bf16 = all.slow_avx512bf16;
  const auto add = [&](const char* name, std::initializer_list<bool F::*> flags) {
    bool gains = false;
    for (bool F::*flag : flags) {
      used.*flag = all.*flag;
      gains = gains || all.*flag;
    }
    if (gains) levels.push_back({name, used});
  };
  add("neon", {&F::neon});
  add("dotprod", {&F::dotprod});
  add("bf16", {&F::bf16});
  add("i8mm", {&F::i8mm, &F::sve});
  add("avx2", {&F::avx2, &F::fma});
  add("avxvnni", {&F::avxvnni});
  add("avx512", {&F::avx512f});
  add("avx512bf16", {&F::avx512bf16, &F::avx512vnni});
  add("amx", {&F::amx_bf16, &F::amx_int8});
  return levels;
}

std::string CpuFeatures::str() const {
  const std::pair<bool, const char*> named[] = {{neon, "neon"},
                                                {dotprod, "dotprod"},
                                                {bf16, "bf16"},
                                                {i8mm, "i8mm"},
                                                {sve, "sve"},
                                                {avx2, "avx2"},
                                                {fma, "fma"},
                                                {avxvnni, "avxvnni"},
                                                {avx512f, "avx512f"},
                                                {avx512bf16, "avx512bf16"},
                                                {avx512vnni, "avx512vnni"},
                                                {amx_bf16, "amx_bf16"},
                                                {amx_int8, "amx_int8"}};
  std::string text;
  for (const auto& [present, name] : named) {
    if (!present) continue;
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text;
}

std::string cpu_name() {
  std::string name = cpuinfo_value("model name");
  if (name.empty()) name = arm_core_name();
  return name.empty() ? "unknown processor" : name;
}

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return std::max(1u, std::thread::hardware_concurrency());
  std::set<std::string> cores;  // a core is named by the list of its hardware threads
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string path = fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu);
    const std::string siblings = first_line(path);
    cores.insert(siblings.empty() ? fmt::format("{}", cpu) : siblings);
  }
  return std::clamp(static_cast<int>(cores.size()), 1, quota_processors());
}

}  // namespace flux2
