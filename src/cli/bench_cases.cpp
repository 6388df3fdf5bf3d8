#include <array>
#include <cmath>
#include <span>

#include "base/enum_names.hpp"
#include "base/message.hpp"
#include "cli/bench_attention.hpp"
#include "cli/bench_ceiling.hpp"

namespace attngraph::cli {
namespace {

constexpr Pass kForward = Pass::kForward, kBackward = Pass::kBackward;
constexpr DataType kF32 = DataType::kF32, kBf16 = DataType::kBf16;
constexpr BenchMask kFull = BenchMask::kFull, kCausal = BenchMask::kCausal, kWindow = BenchMask::kWindow;
constexpr BenchPacking kHeadsFirst = BenchPacking::kHeadsFirst, kTokensFirst = BenchPacking::kTokensFirst;
constexpr BenchPacking kUnequal = BenchPacking::kUnequal;
constexpr BenchPacking kPacked = BenchPacking::kPacked, kGaps = BenchPacking::kPackedWithGaps;
constexpr BenchPacking kOneLong = BenchPacking::kOneLong;

// clang-format off
constexpr std::array kCpuCases = std::to_array<AttentionCase>({
    // name                       pass       type   b  hq  hkv  sq    skv   dim  mask     packing
    {"cpu/forward f32 d64",        kForward,  kF32,  1, 16, 16, 2048, 2048,  64, kFull,   kHeadsFirst},
    {"cpu/forward f32 d64 causal", kForward,  kF32,  1, 16, 16, 2048, 2048,  64, kCausal, kHeadsFirst},
    {"cpu/forward f32 d128",       kForward,  kF32,  1, 16, 16, 2048, 2048, 128, kFull,   kHeadsFirst},
    {"cpu/forward f32 d128 causal", kForward, kF32,  1, 16, 16, 2048, 2048, 128, kCausal, kHeadsFirst},
    {"cpu/backward f32 d64",       kBackward, kF32,  1, 16, 16, 2048, 2048,  64, kFull,   kHeadsFirst},
    {"cpu/backward f32 d64 causal", kBackward, kF32, 1, 16, 16, 2048, 2048,  64, kCausal, kHeadsFirst},
    {"cpu/backward f32 d128",      kBackward, kF32,  1, 16, 16, 2048, 2048, 128, kFull,   kHeadsFirst},
    {"cpu/backward f32 d128 causal", kBackward, kF32, 1, 16, 16, 2048, 2048, 128, kCausal, kHeadsFirst},
    {"cpu/forward bf16 d64",       kForward,  kBf16, 1, 16, 16, 2048, 2048,  64, kFull,   kHeadsFirst},
    {"cpu/forward bf16 d64 causal", kForward, kBf16, 1, 16, 16, 2048, 2048,  64, kCausal, kHeadsFirst},
    {"cpu/forward bf16 d128",      kForward,  kBf16, 1, 16, 16, 2048, 2048, 128, kFull,   kHeadsFirst},
    {"cpu/forward bf16 d128 causal", kForward, kBf16, 1, 16, 16, 2048, 2048, 128, kCausal, kHeadsFirst},
    {"cpu/backward bf16 d64",      kBackward, kBf16, 1, 16, 16, 2048, 2048,  64, kFull,   kHeadsFirst},
    {"cpu/backward bf16 d64 causal", kBackward, kBf16, 1, 16, 16, 2048, 2048, 64, kCausal, kHeadsFirst},
    {"cpu/backward bf16 d128",     kBackward, kBf16, 1, 16, 16, 2048, 2048, 128, kFull,   kHeadsFirst},
    {"cpu/backward bf16 d128 causal", kBackward, kBf16, 1, 16, 16, 2048, 2048, 128, kCausal, kHeadsFirst},
});

// k and v of 256 MiB each row
constexpr std::array kDecodeCases = std::to_array<AttentionCase>({
    {"decode/b1 bf16", kForward, kBf16, 1, 32, 8, 1, 65'536, 128, kFull, kTokensFirst},
    {"decode/b8 bf16", kForward, kBf16, 8, 32, 8, 1,  8'192, 128, kFull, kTokensFirst},
    {"decode/b8 f32",  kForward, kF32,  8, 32, 8, 1,  4'096, 128, kFull, kTokensFirst},
});

// Four sequences of 1,644 tokens keep 5,408,760 elements a head, those of kPackedLens 5,409,920.
constexpr std::array kDenseCases = std::to_array<AttentionCase>({
    {"packed/forward f32 dense",   kForward,  kF32,  4, 8, 2, 1644, 1644, 128, kCausal, kTokensFirst},
    {"packed/backward f32 dense",  kBackward, kF32,  4, 8, 2, 1644, 1644, 128, kCausal, kTokensFirst},
    {"packed/forward bf16 dense",  kForward,  kBf16, 4, 8, 2, 1644, 1644, 128, kCausal, kTokensFirst},
    {"packed/backward bf16 dense", kBackward, kBf16, 4, 8, 2, 1644, 1644, 128, kCausal, kTokensFirst},
});
constexpr std::array kPackedCases = std::to_array<AttentionCase>({
    {"packed/forward f32",         kForward,  kF32,  4, 8, 2, 2048, 2048, 128, kCausal, kPacked},
    {"packed/forward f32 gaps",    kForward,  kF32,  4, 8, 2, 2048, 2048, 128, kCausal, kGaps},
    {"packed/backward f32",        kBackward, kF32,  4, 8, 2, 2048, 2048, 128, kCausal, kPacked},
    {"packed/backward f32 gaps",   kBackward, kF32,  4, 8, 2, 2048, 2048, 128, kCausal, kGaps},
    {"packed/forward bf16",        kForward,  kBf16, 4, 8, 2, 2048, 2048, 128, kCausal, kPacked},
    {"packed/forward bf16 gaps",   kForward,  kBf16, 4, 8, 2, 2048, 2048, 128, kCausal, kGaps},
    {"packed/backward bf16",       kBackward, kBf16, 4, 8, 2, 2048, 2048, 128, kCausal, kPacked},
    {"packed/backward bf16 gaps",  kBackward, kBf16, 4, 8, 2, 2048, 2048, 128, kCausal, kGaps},
});

constexpr std::array kGpuCases = std::to_array<AttentionCase>({
    {"gpu/forward bf16 d64 s4096",          kForward,  kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst},
    {"gpu/forward bf16 d64 s4096 causal",   kForward,  kBf16,  4, 32, 32, 4096, 4096,  64, kCausal, kTokensFirst},
    {"gpu/forward bf16 d64 s8192 grouped window", kForward, kBf16,  2, 64,  8, 8192, 8192,  64, kWindow, kTokensFirst},
    {"gpu/forward bf16 d128 s512",          kForward,  kBf16, 32, 16, 16,  512,  512, 128, kFull,   kTokensFirst},
    {"gpu/forward bf16 d128 s512 causal",   kForward,  kBf16, 32, 16, 16,  512,  512, 128, kCausal, kTokensFirst},
    {"gpu/forward bf16 d128 s1024",          kForward,   kBf16, 16, 16, 16, 1024, 1024, 128, kFull,   kTokensFirst},
    {"gpu/forward bf16 d128 s1024 causal",   kForward,   kBf16, 16, 16, 16, 1024, 1024, 128, kCausal, kTokensFirst},
    {"gpu/forward bf16 d128 s4096",         kForward,  kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst},
    {"gpu/forward bf16 d128 s4096 causal",  kForward,  kBf16,  4, 16, 16, 4096, 4096, 128, kCausal, kTokensFirst},
    {"gpu/forward bf16 d128 s16384",         kForward,   kBf16,  1, 16, 16, 16384, 16384, 128, kFull,   kTokensFirst},
    {"gpu/forward bf16 d128 s16384 causal",  kForward,   kBf16,  1, 16, 16, 16384, 16384, 128, kCausal, kTokensFirst},
    {"gpu/forward bf16 d128 s8192 grouped causal", kForward, kBf16, 2, 32, 8, 8192, 8192, 128, kCausal, kTokensFirst},
    {"gpu/forward bf16 d256 s4096",         kForward,  kBf16,  4,  8,  8, 4096, 4096, 256, kFull,   kTokensFirst},
    {"gpu/forward bf16 d256 s4096 causal",  kForward,  kBf16,  4,  8,  8, 4096, 4096, 256, kCausal, kTokensFirst},
    {"gpu/forward bf16 d192/128 s4096 causal", kForward, kBf16, 1, 128, 128, 4096, 4096, 192, kCausal, kTokensFirst, 128},
    {"gpu/forward bf16 d64 s4096 mask",          kForward,  kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst, 64, false, 0, BenchScores::kMask},
    {"gpu/forward bf16 d128 s512 mask",          kForward,  kBf16, 32, 16, 16,  512,  512, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kMask},
    {"gpu/forward bf16 d128 s4096 mask",      kForward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kMask},
    {"gpu/forward bf16 d128 s4096 bias",      kForward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kBias},
    {"gpu/forward bf16 d128 s4096 dropout",   kForward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kDropout},
    {"gpu/forward f32 d64 s2048",           kForward,  kF32,   4, 16, 16, 2048, 2048,  64, kFull,   kTokensFirst},
    {"gpu/backward bf16 d64 s4096",         kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst},
    {"gpu/backward bf16 d64 s4096 causal",  kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kCausal, kTokensFirst},
    {"gpu/backward bf16 d64 s8192 grouped window", kBackward, kBf16,  2, 64,  8, 8192, 8192,  64, kWindow, kTokensFirst},
    {"gpu/backward bf16 d128 s512",         kBackward, kBf16, 32, 16, 16,  512,  512, 128, kFull,   kTokensFirst},
    {"gpu/backward bf16 d128 s512 causal",  kBackward, kBf16, 32, 16, 16,  512,  512, 128, kCausal, kTokensFirst},
    {"gpu/backward bf16 d128 s1024",         kBackward,  kBf16, 16, 16, 16, 1024, 1024, 128, kFull,   kTokensFirst},
    {"gpu/backward bf16 d128 s1024 causal",  kBackward,  kBf16, 16, 16, 16, 1024, 1024, 128, kCausal, kTokensFirst},
    {"gpu/backward bf16 d128 s4096",        kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst},
    {"gpu/backward bf16 d128 s4096 causal", kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kCausal, kTokensFirst},
    {"gpu/backward bf16 d128 s16384",        kBackward,  kBf16,  1, 16, 16, 16384, 16384, 128, kFull,   kTokensFirst},
    {"gpu/backward bf16 d128 s16384 causal", kBackward,  kBf16,  1, 16, 16, 16384, 16384, 128, kCausal, kTokensFirst},
    {"gpu/backward bf16 d128 s8192 grouped causal", kBackward, kBf16, 2, 32, 8, 8192, 8192, 128, kCausal, kTokensFirst},
    {"gpu/backward bf16 d256 s4096",        kBackward, kBf16,  4,  8,  8, 4096, 4096, 256, kFull,   kTokensFirst},
    {"gpu/backward bf16 d256 s4096 causal", kBackward, kBf16,  4,  8,  8, 4096, 4096, 256, kCausal, kTokensFirst},
    {"gpu/backward bf16 d192/128 s4096 causal", kBackward, kBf16, 1, 128, 128, 4096, 4096, 192, kCausal, kTokensFirst, 128},
    {"gpu/backward bf16 d64 s4096 deterministic",         kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst, 64, true},
    {"gpu/backward bf16 d64 s4096 causal deterministic",  kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kCausal, kTokensFirst, 64, true},
    {"gpu/backward bf16 d128 s512 causal deterministic",  kBackward, kBf16, 32, 16, 16,  512,  512, 128, kCausal, kTokensFirst, 128, true},
    {"gpu/backward bf16 d128 s4096 deterministic",        kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, true},
    {"gpu/backward bf16 d128 s4096 causal deterministic", kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kCausal, kTokensFirst, 128, true},
    {"gpu/backward bf16 d128 s8192 grouped causal deterministic", kBackward, kBf16, 2, 32, 8, 8192, 8192, 128, kCausal, kTokensFirst, 128, true},
    {"gpu/backward bf16 d64 s4096 softcap",      kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst, 64, false, 0, BenchScores::kSoftcap},
    {"gpu/backward bf16 d64 s4096 mask",         kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst, 64, false, 0, BenchScores::kMask},
    {"gpu/backward bf16 d64 s4096 bias",         kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst, 64, false, 0, BenchScores::kBias},
    {"gpu/backward bf16 d64 s4096 dropout",      kBackward, kBf16,  4, 32, 32, 4096, 4096,  64, kFull,   kTokensFirst, 64, false, 0, BenchScores::kDropout},
    {"gpu/backward bf16 d128 s512 mask",         kBackward, kBf16, 32, 16, 16,  512,  512, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kMask},
    {"gpu/backward bf16 d128 s4096 mask",     kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kMask},
    {"gpu/backward bf16 d128 s4096 bias",     kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kBias},
    {"gpu/backward bf16 d128 s4096 dbias",    kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kDbias},
    {"gpu/backward bf16 d128 s4096 dropout",  kBackward, kBf16,  4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst, 128, false, 0, BenchScores::kDropout},
    {"gpu/backward f32 d64 s2048",          kBackward, kF32,   4, 16, 16, 2048, 2048,  64, kFull,   kTokensFirst},
});
constexpr std::array kGpuDecodeCases = std::to_array<AttentionCase>({
    {"decode/b64 kv8192 bf16",   kForward, kBf16, 64, 32, 8, 1,   8'192, 128, kFull, kTokensFirst},
    {"decode/b16 kv32768 bf16",  kForward, kBf16, 16, 32, 8, 1,  32'768, 128, kFull, kTokensFirst},
    {"decode/b1 kv131072 bf16",  kForward, kBf16,  1, 32, 8, 1, 131'072, 128, kFull, kTokensFirst},
    {"decode/b8 kv4096 bf16",    kForward, kBf16,  8, 32, 8, 1,   4'096, 128, kFull, kTokensFirst},
    {"decode/b8 kv512 bf16",     kForward, kBf16,  8, 32, 8, 1,     512, 128, kFull, kTokensFirst},
    {"decode/b1 kv4096 bf16",    kForward, kBf16,  1, 32, 8, 1,   4'096, 128, kFull, kTokensFirst},
    {"decode/b64 kv8192 pages of 16 bf16",  kForward, kBf16, 64, 32, 8, 1, 8'192, 128, kFull, kTokensFirst, 128, false, 16},
    {"decode/b64 kv8192 pages of 64 bf16",  kForward, kBf16, 64, 32, 8, 1, 8'192, 128, kFull, kTokensFirst, 128, false, 64},
    {"decode/b64 kv8192 pages of 128 bf16", kForward, kBf16, 64, 32, 8, 1, 8'192, 128, kFull, kTokensFirst, 128, false, 128},
    {"decode/b128 kv63 to 8064 bf16", kForward, kBf16, 128, 32, 8, 1, 8'064, 128, kFull, kUnequal},
    {"decode/b8 kv910 to 7280 bf16",  kForward, kBf16,   8, 32, 8, 1, 7'280, 128, kFull, kUnequal},
    {"decode/b64 kv8192 64 heads bf16",       kForward, kBf16, 64, 64, 8, 1,  8'192, 128, kFull, kTokensFirst},
    {"decode/b64 kv65536 32 heads on 1 bf16", kForward, kBf16, 64, 32, 1, 1, 65'536, 128, kFull, kTokensFirst},
    {"decode/b64 kv16384 d64 bf16",           kForward, kBf16, 64, 32, 8, 1, 16'384,  64, kFull, kTokensFirst},
});
// A paged row is compared with the first, whose keys lie together.
constexpr std::array kPagedCases = std::to_array<AttentionCase>({
    {"paged/forward bf16 contiguous", kForward, kBf16, 4, 32, 8, 4096, 4096, 128, kCausal, kTokensFirst},
    {"paged/forward bf16 pages of 16",  kForward, kBf16, 4, 32, 8, 4096, 4096, 128, kCausal, kTokensFirst, 128, false, 16},
    {"paged/forward bf16 pages of 64",  kForward, kBf16, 4, 32, 8, 4096, 4096, 128, kCausal, kTokensFirst, 128, false, 64},
    {"paged/forward bf16 pages of 128", kForward, kBf16, 4, 32, 8, 4096, 4096, 128, kCausal, kTokensFirst, 128, false, 128},
});
// The shape of a device's packed rows is that of the host's, with Llama-3-8B's heads. A sequence of 8,223
// tokens keeps 33,812,976 elements a head, those of kOneLongLens 33,814,464.
constexpr std::array kGpuDenseCases = std::to_array<AttentionCase>({
    {"packed/forward bf16 dense",  kForward,  kBf16, 4, 32, 8, 1644, 1644, 128, kCausal, kTokensFirst},
    {"packed/backward bf16 dense", kBackward, kBf16, 4, 32, 8, 1644, 1644, 128, kCausal, kTokensFirst},
    {"packed/forward bf16 dense one",  kForward,  kBf16, 1, 32, 8, 8223, 8223, 128, kCausal, kTokensFirst},
});
constexpr std::array kGpuPackedCases = std::to_array<AttentionCase>({
    {"packed/forward bf16",        kForward,  kBf16, 4, 32, 8, 2048, 2048, 128, kCausal, kPacked},
    {"packed/forward bf16 gaps",   kForward,  kBf16, 4, 32, 8, 2048, 2048, 128, kCausal, kGaps},
    {"packed/forward bf16 one long", kForward, kBf16, 32, 32, 8, 8192, 8192, 128, kCausal, kOneLong},
    {"packed/backward bf16",       kBackward, kBf16, 4, 32, 8, 2048, 2048, 128, kCausal, kPacked},
    {"packed/backward bf16 gaps",  kBackward, kBf16, 4, 32, 8, 2048, 2048, 128, kCausal, kGaps},
});

// One kv head, so that parts of dq fill the threads: those of a chunk alone take less workspace.
constexpr std::array kPlannerCases = std::to_array<AttentionCase>({
    {"planner/backward", kBackward, kF32, 4, 4, 1, 2048, 2048, 64, kCausal, kHeadsFirst},
});
// Two chunks of these take half of the workspace.
constexpr std::array kGpuPlannerCases = std::to_array<AttentionCase>({
    {"planner/backward bf16 s4096",         kBackward, kBf16, 4, 16, 16, 4096, 4096, 128, kFull,   kTokensFirst},
    {"planner/backward bf16 s4096 causal",  kBackward, kBf16, 4, 16, 16, 4096, 4096, 128, kCausal, kTokensFirst},
    {"planner/backward bf16 s8192 grouped causal", kBackward, kBf16, 2, 32, 8, 8192, 8192, 128, kCausal, kTokensFirst},
});
// clang-format on

BenchRow attention_row(const AttentionCase& problem, std::string ceiling) {
  return {problem.name, std::move(ceiling), &problem,
          [&problem](const BenchSetup& setup) { return time_attention(problem, setup); }};
}

bool is_plain(const AttentionCase& problem) {
  return problem.packing != BenchPacking::kUnequal && problem.page_size == 0;
}

/// Name of the plain case of decode with about as many bytes as one of unequal lengths or on pages.
std::string plain_of(const AttentionCase& problem, std::span<const AttentionCase> all) {
  const AttentionCase* nearest = nullptr;
  const auto distance = [&](const AttentionCase& other) {
    return std::fabs(kv_bytes(other) - kv_bytes(problem));
  };
  for (const AttentionCase& other : all)
    if (is_plain(other) && (nearest == nullptr || distance(other) < distance(*nearest))) nearest = &other;
  return nearest->name;
}

/// Name of the dense case that a packed one is compared with.
std::string dense_of(const AttentionCase& problem, std::span<const AttentionCase> all) {
  for (const AttentionCase& dense : all)
    if (dense.pass == problem.pass && dense.dtype == problem.dtype &&
        (dense.batch == 1) == (problem.packing == kOneLong))
      return dense.name;
  return "";
}

}  // namespace

BenchGroup cpu_group() {
  BenchGroup group{"cpu", {}};
  for (const DataType dtype : {kF32, kBf16})
    group.rows.push_back({text("cpu/peak ", dtype), "", nullptr, [dtype](const BenchSetup& setup) {
                            return Result<Timing>(time_peak(setup.target, dtype));
                          }});
  for (const AttentionCase& problem : kCpuCases)
    group.rows.push_back(attention_row(problem, text("cpu/peak ", problem.dtype)));
  return group;
}

BenchGroup gpu_group() {
  BenchGroup group{"gpu", {}};
  constexpr std::string_view kSuffix = " deterministic";
  for (const AttentionCase& problem : kGpuCases) {
    std::string_view plain = problem.name;
    if (problem.deterministic) plain.remove_suffix(kSuffix.size());
    group.rows.push_back(attention_row(problem, problem.deterministic ? std::string(plain) : ""));
  }
  return group;
}

BenchGroup decode_group(MemoryKind memory) {
  BenchGroup group{"decode", {}};
  const bool on_host = memory == MemoryKind::kHost;
  const char* ceiling = on_host ? "decode/read" : "decode/copy";
  group.rows.push_back({ceiling, "", nullptr, [on_host](const BenchSetup& setup) {
                          return on_host ? Result<Timing>(time_read(setup.target)) : time_copy();
                        }});
  const auto cases = on_host ? std::span<const AttentionCase>(kDecodeCases)
                             : std::span<const AttentionCase>(kGpuDecodeCases);
  for (const AttentionCase& problem : cases)
    group.rows.push_back(attention_row(problem, is_plain(problem) ? ceiling : plain_of(problem, cases)));
  return group;
}

BenchGroup packed_group(MemoryKind memory) {
  using Cases = std::span<const AttentionCase>;
  const bool on_host = memory == MemoryKind::kHost;
  const Cases dense = on_host ? Cases(kDenseCases) : Cases(kGpuDenseCases);
  BenchGroup group{"packed", {}};
  for (const AttentionCase& problem : dense) group.rows.push_back(attention_row(problem, ""));
  for (const AttentionCase& problem : on_host ? Cases(kPackedCases) : Cases(kGpuPackedCases))
    group.rows.push_back(attention_row(problem, dense_of(problem, dense)));
  return group;
}

BenchGroup paged_group() {
  BenchGroup group{"paged", {}};
  for (const AttentionCase& problem : kPagedCases)
    group.rows.push_back(attention_row(problem, problem.page_size > 0 ? kPagedCases.front().name : ""));
  return group;
}

BenchGroup planner_group(MemoryKind memory) {
  const bool on_host = memory == MemoryKind::kHost;
  BenchGroup group{"planner", {}};
  const auto add = [&](const AttentionCase& problem, int64_t chunks) {
    group.rows.push_back(
        {text(problem.name, " in ", chunks, " chunks"), problem.name, &problem,
         [&problem, chunks](const BenchSetup& setup) { return time_attention(problem, setup, chunks); }});
  };
  for (const AttentionCase& problem : on_host ? std::span<const AttentionCase>(kPlannerCases)
                                              : std::span<const AttentionCase>(kGpuPlannerCases)) {
    group.rows.push_back(attention_row(problem, ""));
    add(problem, 2);
    if (on_host) add(problem, 4);
  }
  return group;
}

}  // namespace attngraph::cli
