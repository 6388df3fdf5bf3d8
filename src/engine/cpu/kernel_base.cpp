#include "base/half.hpp"
#include "engine/cpu/kernels.hpp"

// Any processor: the compiler maps four-lane vectors to what the baseline has.
namespace attngraph::cpu::portable {

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
typedef uint32_t U __attribute__((vector_size(16)));
inline constexpr int64_t kLanes = 4, kMr = 4, kNv = 2;

inline F set1(float x) { return F{x, x, x, x}; }
inline F fma(F a, F b, F c) { return a * b + c; }
/// b where either is NaN, as the x86 instructions.
inline F max(F a, F b) { return a > b ? a : b; }
inline F min(F a, F b) { return a < b ? a : b; }
inline F interleave_low(F a, F b) { return F{a[0], b[0], a[1], b[1]}; }
inline F interleave_high(F a, F b) { return F{a[2], b[2], a[3], b[3]}; }

inline void wide_product(U a, uint32_t b, U& high, U& low) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t product = uint64_t{a[i]} * b;
    high[i] = static_cast<uint32_t>(product >> 32);
    low[i] = static_cast<uint32_t>(product);
  }
}

template <float (*kWiden)(uint16_t)>
inline F widen_16(const void* p) {
  uint16_t bits[kLanes];
  __builtin_memcpy(bits, p, sizeof bits);
  F v;
  for (int i = 0; i < kLanes; ++i) v[i] = kWiden(bits[i]);
  return v;
}
template <uint16_t (*kNarrow)(double)>
inline void narrow_16(void* p, F v) {
  uint16_t bits[kLanes];
  for (int i = 0; i < kLanes; ++i) bits[i] = kNarrow(double{v[i]});
  __builtin_memcpy(p, bits, sizeof bits);
}
inline F widen_f16(const void* p) { return widen_16<from_f16>(p); }
inline F widen_bf16(const void* p) { return widen_16<from_bf16>(p); }
inline void narrow_f16(void* p, F v) { narrow_16<to_f16>(p, v); }
inline void narrow_bf16(void* p, F v) { narrow_16<to_bf16>(p, v); }

inline void keep_in_register(F& v) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(v));
#else
  asm volatile("" : "+m"(v));
#endif
}

#include "engine/cpu/kernel_body.inc"

const Kernels kKernels = make_kernels(CpuIsa::kPortable);

}  // namespace attngraph::cpu::portable
