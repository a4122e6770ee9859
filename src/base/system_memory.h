#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace flux2 {

// Memory from the system, aligned to 64 bytes. Large blocks are mappings of their own in huge pages where the system has
// them: few page faults, few TLB misses, and given back at once. Null when there is none left.
void* take_from_system(size_t bytes);
void give_to_system(void* block, size_t bytes);

// The same with an owner. Throws OutOfMemory.
std::shared_ptr<void> system_memory(size_t bytes);

struct MemorySize {
  int64_t total = 0, available = 0;  // bytes; 0 when unknown
};

// What this process may use: the machine's memory, or its control group's limit where that is less. Available counts
// cached pages that the system would give up.
MemorySize system_memory_size();

}  // namespace flux2
