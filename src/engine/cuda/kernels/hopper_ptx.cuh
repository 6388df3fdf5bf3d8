#pragma once

#include "engine/cuda/kernels/ptx.cuh"

/// Instructions of sm_90a: barriers with a byte count, tensor copies, asynchronous products. The same bytes
/// of a tile serve every operand: panels of 64 columns, 128 bytes a row, 128-byte swizzle, each panel
/// aligned to 1024 bytes.
///
/// Source: PTX ISA 8.7, mbarrier, cp.async.bulk.tensor, wgmma.
namespace attngraph::cuda {

inline constexpr int kPanelColumns = 64, kPanelRowBytes = 128;

/// 1 / x, relative error 2^-23; 0 for infinity.
__device__ inline float reciprocal_fast(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// One, two, four or eight bytes of shared memory.
template <class Bits>
__device__ inline Bits load_shared(uint32_t address) {
  if constexpr (sizeof(Bits) == 8) {
    uint2 r;
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "r"(address) : "memory");
    return r;
  } else {
    uint32_t r;
    if constexpr (sizeof(Bits) == 1)
      asm volatile("ld.shared.u8 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
    else if constexpr (sizeof(Bits) == 2)
      asm volatile("ld.shared.u16 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
    else
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
    return static_cast<Bits>(r);
  }
}
template <class Bits>
__device__ inline void store_shared(uint32_t address, Bits value) {
  if constexpr (sizeof(Bits) == 1)
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(uint32_t{value}) : "memory");
  else if constexpr (sizeof(Bits) == 2)
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "r"(uint32_t{value}) : "memory");
  else
    store_shared_4(address, value);
}

// --- launches that overlap, see KernelInstance::awaits_previous ---

/// Lets the blocks of the next launch start, if it awaits this one itself, once all of this one's have
/// started.
__device__ inline void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Waits until the launches before have ended and their writes can be read. Arguments may be read earlier.
__device__ inline void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Copies a kernel's arguments to shared memory, all at once; the block must still meet. Read as constants,
/// each 64 bytes of them arrive when they are first asked for, on an H200 some 0.2 us later.
template <class Object>
__device__ inline void bring_arguments(const Object& arguments, void* to) {
  static_assert(sizeof(Object) % 8 == 0 && alignof(Object) % 8 == 0);
  for (int at = static_cast<int>(threadIdx.x); at < static_cast<int>(sizeof(Object) / 8);
       at += static_cast<int>(blockDim.x)) {
    uint64_t piece;
    asm volatile("ld.b64 %0, [%1];" : "=l"(piece) : "l"(reinterpret_cast<const uint64_t*>(&arguments) + at));
    static_cast<uint64_t*>(to)[at] = piece;
  }
}

/// True in one lane of the whole warp that calls it, always the same; the compiler knows that it is one.
__device__ inline bool elect() {
  uint32_t is_one;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(is_one));
  return is_one != 0;
}

// --- barriers in shared memory, by address ---

__device__ inline void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to the copy engine; the block must still meet.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives and announces `bytes` that copies will bring.
__device__ inline void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Waits for the end of the barrier's phase of this parity; the phase before the first has parity 1.
__device__ inline void wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

/// Makes this thread's writes to shared memory visible to copies and asynchronous products.
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Threads of a named barrier (1 .. 15) meet, or one side announces itself and goes on.
__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void announce(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// Whether it is so for one of a warpgroup's threads, which meet at a named barrier.
__device__ inline bool any_of_group(int barrier, bool is_so) {
  uint32_t any;
  asm volatile(
      "{.reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.or.pred.aligned q, %2, 128, p; "
      "selp.u32 %0, 1, 0, q;}"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(is_so)), "r"(barrier)
      : "memory");
  return __any_sync(0xffffffffu, any != 0);  // which the compiler knows to be uniform
}
/// `number`, but not before `weight` is known, an exponential: ptxas moves a barrier ahead of computations
/// that it does not depend on.
__device__ inline int once_known(int number, float weight) {
  return number + (__float_as_uint(weight) == 0x80000001u);  // the least number below 0
}

/// All threads of a cluster announce themselves, and wait for all. What they wrote to shared memory before
/// may be read by all behind it.
__device__ inline void announce_to_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void await_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// Of the number of blocks of the cluster, a power of 2; 0 without one.
__device__ inline int cluster_blocks_log2() {
  int log2;
  asm("{.reg .u32 blocks; mov.u32 blocks, %%cluster_nctarank; bfind.u32 %0, blocks;}" : "=r"(log2));
  return log2;
}
/// Which block of the cluster this one is.
__device__ inline int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// The same object in the shared memory of another block of the cluster.
template <class Object>
__device__ inline Object* in_block(int rank, Object* own) {
  Object* other;
  asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(own), "r"(rank));
  return other;
}

/// Registers a thread of the calling warpgroup.
template <int kRegisters>
__device__ inline void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- tensor copies ---

/// How long L2 should keep what a copy brings. Source: the encodings of createpolicy.fractional.
enum class Keep : uint64_t { kFirstOut = 0x12F0000000000000, kLastOut = 0x14F0000000000000 };

/// Copies one box of a map, at (column, row, head, batch); what lies outside of the map arrives as zero.
__device__ inline void copy_box(uint32_t to, const void* map, int column, int row, int head, int batch,
                                uint32_t barrier, Keep keep) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier), "l"(static_cast<uint64_t>(keep))
      : "memory");
}
__device__ inline void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// --- copies out of shared memory, by one thread, which must wait for them itself ---

/// Adds floats to neighbouring floats of global memory; 16-byte pieces, aligned.
__device__ inline void add_floats(float* to, uint32_t from, int bytes, Keep keep) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, %3;" ::"l"(
          to),
      "r"(from), "r"(bytes), "l"(static_cast<uint64_t>(keep))
      : "memory");
}
/// Writes them instead.
__device__ inline void write_floats(float* to, uint32_t from, int bytes, Keep keep) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
               "r"(from), "r"(bytes), "l"(static_cast<uint64_t>(keep))
               : "memory");
}
/// Waits until everything that this thread has started was read from shared memory.
__device__ inline void wait_floats_read() {
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// The same until it is in global memory.
__device__ inline void wait_floats_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// A counter; what was written before it was raised so far may be read.
__device__ inline int read_count(const int32_t* counter) {
  int count;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  return count;
}
/// The same by copies.
__device__ inline void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
__device__ inline void raise_count(int32_t* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

// --- asynchronous products of a warpgroup ---

/// The low word of a matrix descriptor; the high one is the same for all: 128-byte swizzle, 1024 bytes from
/// one group of eight rows to the next.
using Operand = uint32_t;

/// A value that all lanes of a warp have, in a form that the compiler knows to be so: what operands of
/// products are computed from then stays in uniform registers. Asked for anew at each product, it takes some
/// 40 cycles each time.
__device__ inline uint32_t uniform(uint32_t value) { return __shfl_sync(0xffffffffu, value, 0); }

/// Rows are the operand's outer axis and columns the summed one, as stored: Q and K in Q K^T.
/// One step of 16 columns is +2, the next panel + its bytes / 16.
__device__ inline Operand row_operand(uint32_t address) { return address / 16 | uint32_t{1} << 16; }
/// Rows are the summed axis: V in P V. One step of 16 rows is +128.
__device__ inline Operand column_operand(uint32_t address, int panel_bytes) {
  return address / 16 | static_cast<uint32_t>(panel_bytes / 16) << 16;
}

__device__ inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// clang-format off
// wgmma names each accumulator in its text and as an operand. Ten operands of the text by their tens, eight
// accumulators with `c` "=" or "+"; from them, one line each, the lists of every width.
#define ATTNGRAPH_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define ATTNGRAPH_THIRTY ATTNGRAPH_TEN() "," ATTNGRAPH_TEN(1) "," ATTNGRAPH_TEN(2)
#define ATTNGRAPH_SIXTY ATTNGRAPH_THIRTY "," ATTNGRAPH_TEN(3) "," ATTNGRAPH_TEN(4) "," ATTNGRAPH_TEN(5)
#define ATTNGRAPH_NINETY ATTNGRAPH_SIXTY "," ATTNGRAPH_TEN(6) "," ATTNGRAPH_TEN(7) "," ATTNGRAPH_TEN(8)
#define ATTNGRAPH_TEXT32 ATTNGRAPH_THIRTY ",%30,%31"
#define ATTNGRAPH_TEXT40 ATTNGRAPH_THIRTY "," ATTNGRAPH_TEN(3)
#define ATTNGRAPH_TEXT48 ATTNGRAPH_THIRTY "," ATTNGRAPH_TEN(3) ",%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTNGRAPH_TEXT64 ATTNGRAPH_SIXTY ",%60,%61,%62,%63"
#define ATTNGRAPH_TEXT96 ATTNGRAPH_NINETY ",%90,%91,%92,%93,%94,%95"
#define ATTNGRAPH_TEXT128 \
  ATTNGRAPH_NINETY "," ATTNGRAPH_TEN(9) "," ATTNGRAPH_TEN(10) "," ATTNGRAPH_TEN(11) ",%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTNGRAPH_D8(c, d, i) \
  c "f"(d[i]), c "f"(d[i + 1]), c "f"(d[i + 2]), c "f"(d[i + 3]), c "f"(d[i + 4]), c "f"(d[i + 5]), c "f"(d[i + 6]), c "f"(d[i + 7])
#define ATTNGRAPH_D16(c, d, i) ATTNGRAPH_D8(c, d, i), ATTNGRAPH_D8(c, d, i + 8)
#define ATTNGRAPH_D32(c, d, i) ATTNGRAPH_D16(c, d, i), ATTNGRAPH_D16(c, d, i + 16)
#define ATTNGRAPH_D40(c, d, i) ATTNGRAPH_D32(c, d, i), ATTNGRAPH_D8(c, d, i + 32)
#define ATTNGRAPH_D48(c, d, i) ATTNGRAPH_D32(c, d, i), ATTNGRAPH_D16(c, d, i + 32)
#define ATTNGRAPH_D64(c, d, i) ATTNGRAPH_D32(c, d, i), ATTNGRAPH_D32(c, d, i + 32)
#define ATTNGRAPH_D96(c, d, i) ATTNGRAPH_D64(c, d, i), ATTNGRAPH_D32(c, d, i + 64)
#define ATTNGRAPH_D128(c, d, i) ATTNGRAPH_D64(c, d, i), ATTNGRAPH_D64(c, d, i + 64)
#define ATTNGRAPH_WGMMA(accumulates, a, b, columns, type) \
  "{.reg .pred p; .reg .b64 a, b; setp.ne.b32 p, " accumulates ", 0; " \
  "mov.b64 a, {" a ", 0x40000040}; mov.b64 b, {" b ", 0x40000040}; " \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " "

// The products of one width; `x` .. `x4` are the numbers of the operands behind the accumulators.
//
// start_product: d = a b^T, 64 rows by twice as many columns as d has elements; both of 16 columns in shared
// memory. With kRowsSummed d = a^T b, both of 16 rows. What d held is not read, so that nothing defines it
// while other products run.
// add_product: the same added to d; and d += a b, a's 16 columns in registers, b's 16 rows in shared memory.
#define ATTNGRAPH_PRODUCTS(columns, elements, x, x1, x2, x3, x4) \
  template <class T, bool kRowsSummed> \
  __device__ __forceinline__ void start_product(float (&d)[elements], Operand a, Operand b) { \
    if constexpr (std::is_same_v<T, __half>) \
      ATTNGRAPH_FROM_SHARED("0", "=", columns, elements, "f16", x, x1, x2); \
    else \
      ATTNGRAPH_FROM_SHARED("0", "=", columns, elements, "bf16", x, x1, x2); \
  } \
  template <class T, bool kRowsSummed> \
  __device__ __forceinline__ void add_product(float (&d)[elements], Operand a, Operand b) { \
    if constexpr (std::is_same_v<T, __half>) \
      ATTNGRAPH_FROM_SHARED("1", "+", columns, elements, "f16", x, x1, x2); \
    else \
      ATTNGRAPH_FROM_SHARED("1", "+", columns, elements, "bf16", x, x1, x2); \
  } \
  template <class T> \
  __device__ __forceinline__ void add_product(float (&d)[elements], const uint32_t (&a)[4], Operand b) { \
    if constexpr (std::is_same_v<T, __half>) \
      ATTNGRAPH_FROM_REGISTERS(columns, elements, "f16", x, x1, x2, x3, x4); \
    else \
      ATTNGRAPH_FROM_REGISTERS(columns, elements, "bf16", x, x1, x2, x3, x4); \
  }
#define ATTNGRAPH_FROM_SHARED(accumulates, c, columns, elements, type, x, x1, x2) \
  asm volatile(ATTNGRAPH_WGMMA(accumulates, "%" #x, "%" #x1, columns, type) \
               "{" ATTNGRAPH_TEXT##elements "}, a, b, p, 1, 1, %" #x2 ", %" #x2 ";}" \
               : ATTNGRAPH_D##elements(c, d, 0) : "r"(a), "r"(b), "n"(static_cast<int>(kRowsSummed)))
#define ATTNGRAPH_FROM_REGISTERS(columns, elements, type, x, x1, x2, x3, x4) \
  asm volatile(ATTNGRAPH_WGMMA("1", "%" #x4, "%" #x4, columns, type) \
               "{" ATTNGRAPH_TEXT##elements "}, {%" #x ",%" #x1 ",%" #x2 ",%" #x3 "}, b, p, 1, 1, 1;}" \
               : ATTNGRAPH_D##elements("+", d, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b))

ATTNGRAPH_PRODUCTS(64, 32, 32, 33, 34, 35, 36)
ATTNGRAPH_PRODUCTS(80, 40, 40, 41, 42, 43, 44)
ATTNGRAPH_PRODUCTS(96, 48, 48, 49, 50, 51, 52)
ATTNGRAPH_PRODUCTS(128, 64, 64, 65, 66, 67, 68)
ATTNGRAPH_PRODUCTS(192, 96, 96, 97, 98, 99, 100)
ATTNGRAPH_PRODUCTS(256, 128, 128, 129, 130, 131, 132)

#undef ATTNGRAPH_TEN
#undef ATTNGRAPH_THIRTY
#undef ATTNGRAPH_SIXTY
#undef ATTNGRAPH_NINETY
#undef ATTNGRAPH_TEXT32
#undef ATTNGRAPH_TEXT40
#undef ATTNGRAPH_TEXT48
#undef ATTNGRAPH_TEXT64
#undef ATTNGRAPH_TEXT96
#undef ATTNGRAPH_TEXT128
#undef ATTNGRAPH_D8
#undef ATTNGRAPH_D16
#undef ATTNGRAPH_D32
#undef ATTNGRAPH_D40
#undef ATTNGRAPH_D48
#undef ATTNGRAPH_D64
#undef ATTNGRAPH_D96
#undef ATTNGRAPH_D128
#undef ATTNGRAPH_WGMMA
#undef ATTNGRAPH_FROM_SHARED
#undef ATTNGRAPH_FROM_REGISTERS
#undef ATTNGRAPH_PRODUCTS
// clang-format on

template <class T, bool kRowsSummed, int kElements>
__device__ __forceinline__ void product(float (&d)[kElements], Operand a, Operand b, bool accumulates) {
  if (accumulates)
    add_product<T, kRowsSummed>(d, a, b);
  else
    start_product<T, kRowsSummed>(d, a, b);
}

}  // namespace attngraph::cuda
