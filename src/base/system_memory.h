#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace flux2 {

// Memory from the system, aligned to 64 bytes. Large blocks are separate mappings, in huge pages if the system has them: few page
// faults, few TLB misses, and the memory returns to the system immediately. Returns null if no memory is left.
void* take_from_system(size_t bytes);
void give_to_system(void* block, size_t bytes);

// The same with an owner. Throws OutOfMemory.
std::shared_ptr<void> system_memory(size_t bytes);

struct MemorySize {
  int64_t total = 0, available = 0;  // bytes; 0 when unknown
};

// The memory that this process may use: the machine's memory, or the limit of its control group if that is smaller. `available`
// includes cached pages that the system would reclaim.
MemorySize system_memory_size();

}  // namespace flux2
