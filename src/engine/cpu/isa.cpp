#include "engine/cpu/isa.hpp"

#include <initializer_list>

#include "engine/cpu/kernels.hpp"

namespace attngraph::cpu {
namespace {

#if defined(__x86_64__)
bool runs_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/// Whether products of bfloat16 pairs outrun those of floats, to which bfloat16 is widened otherwise.
///
/// Units:  GFLOP/s of both loops on two threads, as `attngraph bench --filter cpu/peak` measures them.
/// Source: a Xeon with AMX (docs/performance.md); a Zen 5.
bool pairs_pay() {
  const struct {
    bool here;
    int floats, pairs;
  } rates[] = {{__builtin_cpu_is("intel") != 0, 325, 160}, {__builtin_cpu_is("amd") != 0, 511, 1038}};
  for (const auto& rate : rates)
    if (rate.here) return rate.pairs > rate.floats;
  return true;
}
#else
bool pairs_pay() { return true; }
#endif

}  // namespace

bool machine_runs(CpuIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::kPortable:
      return true;
    case CpuIsa::kAvx2:
      return runs_avx2();
    case CpuIsa::kAvx512:
      return runs_avx512();
    case CpuIsa::kAvx512Bf16:
      return runs_avx512() && __builtin_cpu_supports("avx512bf16");
  }
#endif
  return isa == CpuIsa::kPortable;
}

CpuIsa best_isa() {
  for (const CpuIsa isa : {CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2})
    if (machine_runs(isa) && (isa != CpuIsa::kAvx512Bf16 || pairs_pay())) return isa;
  return CpuIsa::kPortable;
}

const Kernels& kernels(CpuIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::kPortable:
      return portable::kKernels;
    case CpuIsa::kAvx2:
      return avx2::kKernels;
    case CpuIsa::kAvx512:
      return avx512::kKernels;
    case CpuIsa::kAvx512Bf16:
      return avx512bf16::kKernels;
  }
#endif
  static_cast<void>(isa);
  return portable::kKernels;
}

}  // namespace attngraph::cpu
