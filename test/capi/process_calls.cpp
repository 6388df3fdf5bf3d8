#include "capi/process_calls.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace attngraph::test {
namespace {

struct Counter {
  std::atomic<int64_t> all = 0, own = 0;
};
Counter allocations, locks, environment_reads;

struct Module {
  uintptr_t begin = 0, end = 0;
};

/// Where the program and the C++ library lie.
std::array<Module, 2> own_modules() {
  std::array<Module, 2> modules;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const bool is_program = info->dlpi_name[0] == '\0';
        if (!is_program && std::strstr(info->dlpi_name, "libstdc++") == nullptr) return 0;
        Module& module = (*static_cast<std::array<Module, 2>*>(found))[is_program ? 0 : 1];
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
          if (module.end == 0) module.begin = begin;
          module.end = begin + segment.p_memsz;
        }
        return is_program ? 0 : 1;
      },
      &modules);
  return modules;
}
const std::array<Module, 2> own = own_modules();

void note(Counter& counter, const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  ++counter.all;
  counter.own += std::any_of(own.begin(), own.end(), [&](const Module& module) {
    return module.begin <= address && address < module.end;
  });
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

ProcessCalls process_calls() { return {allocations.all, locks.all, environment_reads.all}; }
ProcessCalls own_calls() { return {allocations.own, locks.own, environment_reads.own}; }

}  // namespace attngraph::test

using namespace attngraph::test;

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  note(allocations, __builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note(allocations, __builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  note(allocations, __builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note(allocations, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  note(allocations, __builtin_return_address(0));
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto lock = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  note(locks, __builtin_return_address(0));
  return lock(mutex);
}
char* getenv(const char* name) {
  static const auto get = next<char*(const char*)>("getenv");
  note(environment_reads, __builtin_return_address(0));
  return get(name);
}
}

// Here, so that a caller is who asked and not the C++ library.
void* operator new(size_t bytes) {
  note(allocations, __builtin_return_address(0));
  if (void* memory = __libc_malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  note(allocations, __builtin_return_address(0));
  return __libc_malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
