#include <immintrin.h>

#include "engine/cpu/kernels.hpp"

// AVX-512 F, BW, DQ, VL: sixteen lanes, thirty-two registers, a 12 x 32 micro-kernel.
namespace attngraph::cpu::avx512 {

#include "engine/cpu/avx512_lanes.inc"
#include "engine/cpu/kernel_body.inc"

const Kernels kKernels = make_kernels(CpuIsa::kAvx512);

}  // namespace attngraph::cpu::avx512
