#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "problem/host_rows.hpp"
#include "problem/layout.hpp"
#include "problem/program.hpp"
#include "support/catch.hpp"
#include "unit/problem/sample.hpp"

using namespace attngraph;
using namespace attngraph::test;
using enum Role;

namespace {

__extension__ typedef __int128 Wide;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();

int64_t draw(std::mt19937& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

/// An operand of random shape; strides are arbitrary.
Operand random_operand(std::mt19937& random) {
  Operand t;
  t.present = true;
  for (int64_t& extent : t.extent) extent = draw(random, 1, 4);
  for (int64_t& stride : t.stride) stride = draw(random, 0, 30);
  return t;
}

/// One past the largest address of `outer` blocks [heads, rows, dim], `outer_stride` apart.
int64_t enumerated_footprint(const Operand& t, int64_t outer, int64_t outer_stride, int64_t rows) {
  int64_t end = 0;
  for (int64_t block = 0; block < outer; ++block)
    for (int64_t head = 0; head < t.extent[1]; ++head)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t d = 0; d < t.extent[3]; ++d)
          end = std::max(end,
                         block * outer_stride + head * t.stride[1] + row * t.stride[2] + d * t.stride[3] + 1);
  return end;
}

/// Rows, from the first on, whose last element lies inside the footprint.
int64_t enumerated_rows(const Operand& t, int64_t slots, int64_t offset) {
  const Wide start = Wide{offset} * t.multiplier;
  if (start < 0) return 0;
  const Wide beyond = Wide{t.extent[1] - 1} * t.stride[1] + Wide{t.extent[3] - 1} * t.stride[3];
  const Wide footprint = slots == 0 ? 0 : beyond + Wide{slots - 1} * t.stride[2] + 1;
  int64_t rows = 0;
  while (rows < t.extent[2] && start + Wide{rows} * t.stride[2] + beyond < footprint) ++rows;
  return rows;
}

/// Garbage that a caller may bind: mostly near the legal range, sometimes an extreme.
int64_t untrusted(std::mt19937& random, int64_t legal) {
  static constexpr int64_t kExtremes[] = {kMin, kMin + 1, -1, kMax, kMax - 1, int64_t{1} << 32};
  return random() % 4 == 0 ? kExtremes[random() % std::size(kExtremes)] : draw(random, -2, legal + 2);
}

std::vector<int64_t> untrusted_vector(std::mt19937& random, size_t count, int64_t legal) {
  std::vector<int64_t> values(count);
  for (int64_t& value : values) value = untrusted(random, legal);
  return values;
}

const std::byte* bytes_of(const std::vector<int64_t>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
/// Inputs are read only; Buffers holds inputs and outputs under one type.
std::byte* input(const std::vector<int64_t>& values) { return const_cast<std::byte*>(bytes_of(values)); }

/// A packed forward with int64 lengths and offsets, and the data bound to it.
struct UntrustedCall {
  Problem problem;
  std::vector<int64_t> q_lens, kv_lens, q_offsets, kv_offsets;
  Buffers buffers;

  explicit UntrustedCall(std::mt19937& random) {
    Sample s = packed();
    s.remove(kSeqLenKv);
    s.add(kCuSeqLenKv, DataType::kI64, dense({3}));
    s[kSeqLenQ].dtype = DataType::kI64;
    s.attributes().max_total_q = 5;
    s.attributes().max_total_kv = 8;
    for (const Role role : {kQ, kK, kV, kO, kStats}) {
      s[role].ragged->multiplier = random() % 2 ? s[role].strides[2] : draw(random, 1, 40);
      s.graph.find(s[role].ragged->offsets)->dtype = DataType::kI64;
    }
    problem = validate(s.graph).value().program.nodes[0].problem;
    q_lens = untrusted_vector(random, 2, 3);
    kv_lens = untrusted_vector(random, 3, 8);
    q_offsets = untrusted_vector(random, 3, 5);
    kv_offsets = untrusted_vector(random, 3, 8);
    buffers.bounds = declared_bounds(problem);
    buffers.data[static_cast<size_t>(kSeqLenQ)] = input(q_lens);
    buffers.data[static_cast<size_t>(kCuSeqLenKv)] = input(kv_lens);
    for (const Role role : {kQ, kO, kStats}) buffers.offsets[static_cast<size_t>(role)] = bytes_of(q_offsets);
    for (const Role role : {kK, kV}) buffers.offsets[static_cast<size_t>(role)] = bytes_of(kv_offsets);
  }

  SequenceLengths expected_lengths(size_t batch) const {
    const Wide cumulative = Wide{kv_lens[batch + 1]} - kv_lens[batch];
    SequenceLengths lengths{std::clamp<int64_t>(q_lens[batch], 0, 3),
                            static_cast<int64_t>(std::clamp<Wide>(cumulative, 0, 5))};
    for (const Role role : {kQ, kO, kStats})
      lengths.q = std::min(lengths.q, enumerated_rows(problem[role], 5, q_offsets[batch]));
    for (const Role role : {kK, kV})
      lengths.kv = std::min(lengths.kv, enumerated_rows(problem[role], 8, kv_offsets[batch]));
    return lengths;
  }
};

}  // namespace

TEST_CASE("the footprint of a ragged tensor holds every token slot of every head", "[layout]") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 2000; ++trial) {
    Problem p;
    p.batch = draw(random, 0, 3);
    p.q_slots = draw(random, 0, 9);
    Operand& t = p[kQ] = random_operand(random);
    t.ragged = true;
    REQUIRE(footprint_elems(p, kQ) == enumerated_footprint(t, 1, 0, p.q_slots));
  }
}

TEST_CASE("the footprint of a paged tensor holds every page of the container", "[layout]") {
  std::mt19937 random(12);
  for (int trial = 0; trial < 2000; ++trial) {
    Problem p;
    p.batch = draw(random, 0, 3);
    Operand& t = p[kK] = random_operand(random);
    t.extent[0] = draw(random, 0, 5);
    p[kPageTableK].present = true;
    REQUIRE(footprint_elems(p, kK) == enumerated_footprint(t, t.extent[0], t.stride[0], t.extent[2]));
  }
}

TEST_CASE("a call that brings fewer sequences, slots or pages has the smaller footprint", "[layout]") {
  Problem p = validate(packed().graph).value().program.nodes[0].problem;
  Bounds bounds = declared_bounds(p);
  CHECK(footprint_bytes(p, kQ, bounds) == 6 * 4 * 8 * 2);
  CHECK(footprint_bytes(p, kSeqLenQ, bounds) == 2 * 4);
  bounds.q_slots = 2, bounds.batch = 1;
  CHECK(footprint_bytes(p, kQ, bounds) == 2 * 4 * 8 * 2);
  CHECK(footprint_bytes(p, kSeqLenQ, bounds) == 4);
  CHECK(offsets_footprint_bytes(p[kQ], 1) == 8);

  p = validate(paged().graph).value().program.nodes[0].problem;
  bounds = declared_bounds(p);
  CHECK(footprint_bytes(p, kK, bounds) == 7 * 2 * 4 * 8 * 2);
  bounds.k_pages = 3;
  CHECK(footprint_bytes(p, kK, bounds) == 3 * 2 * 4 * 8 * 2);
  CHECK(footprint_bytes(p, kV, bounds) == 7 * 2 * 4 * 6 * 2);
}

TEST_CASE("rows inside are those whose elements all lie inside the footprint", "[layout]") {
  std::mt19937 random(13);
  int cut = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Operand t = random_operand(random);
    t.multiplier = draw(random, 1, 40);
    const int64_t slots = draw(random, 0, 9), offset = draw(random, -1, 12);
    const int64_t rows = enumerated_rows(t, slots, offset);
    cut += rows > 0 && rows < t.extent[2];
    REQUIRE(rows_inside(t, slots, offset) == rows);
  }
  CHECK(cut > 500);
}

TEST_CASE("rows inside are exact for offsets and strides at the ends of int64", "[layout]") {
  std::mt19937 random(14);
  const int64_t values[] = {kMin, -1, 0, 1, int64_t{1} << 31, int64_t{1} << 62, kMax - 1, kMax};
  for (int trial = 0; trial < 20000; ++trial) {
    Operand t = random_operand(random);
    t.stride[2] = random() % 2 ? t.stride[2] : draw(random, 1, kMax / 8);
    t.multiplier = random() % 2 ? std::max<int64_t>(t.stride[2], 1) : draw(random, 1, kMax);
    const int64_t slots = draw(random, 0, 7);
    const int64_t offset = random() % 2 ? draw(random, 0, 8) : values[random() % std::size(values)];
    REQUIRE(rows_inside(t, slots, offset) == enumerated_rows(t, slots, offset));
  }
}

TEST_CASE("a tensor without elements has all its rows inside", "[layout]") {
  Operand t;
  t.extent = {2, 0, 5, 8};
  t.stride = {0, 0, 0, 1};
  t.multiplier = 0;
  CHECK(rows_inside(t, 0, 3) == 5);
}

TEST_CASE("lengths and offsets that lie cut a sequence to its rows inside every tensor", "[layout]") {
  std::mt19937 random(15);
  int64_t rows = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    const UntrustedCall call(random);
    for (int64_t b = 0; b < 2; ++b) {
      const SequenceLengths lengths = host_lengths(call.problem, call.buffers, b);
      const SequenceLengths expected = call.expected_lengths(static_cast<size_t>(b));
      REQUIRE(lengths.q == expected.q);
      REQUIRE(lengths.kv == expected.kv);
      rows += lengths.q + lengths.kv;
    }
  }
  CHECK(rows > 2000);
}

TEST_CASE("no row of a cut sequence leaves its tensor's footprint", "[layout]") {
  std::mt19937 random(16);
  for (int trial = 0; trial < 5000; ++trial) {
    const UntrustedCall call(random);
    for (int64_t b = 0; b < 2; ++b) {
      const SequenceLengths lengths = host_lengths(call.problem, call.buffers, b);
      for (const Role role : {kQ, kK, kV, kO, kStats}) {
        const Operand& t = call.problem[role];
        const HostRows rows = host_rows(call.problem, call.buffers, role, b);
        const int64_t count = side_of(role) == Side::kQ ? lengths.q : lengths.kv;
        for (int64_t row = 0; row < count; ++row) {
          REQUIRE(rows.row(0, row) >= 0);
          REQUIRE(rows.row(heads(t) - 1, row) + (dim(t) - 1) * rows.dim_stride <
                  footprint_elems(call.problem, role));
        }
      }
    }
  }
}

TEST_CASE("a key on a page outside the container is absent", "[layout]") {
  const Problem p = validate(paged().graph).value().program.nodes[0].problem;
  std::vector<int32_t> table = {
      6, 7, -1, 0, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  Buffers buffers;
  buffers.bounds = declared_bounds(p);
  buffers.data[static_cast<size_t>(kPageTableK)] = reinterpret_cast<std::byte*>(table.data());
  const HostRows first = host_rows(p, buffers, kK, 0), second = host_rows(p, buffers, kK, 1);
  // k [7, 2, 4, 8] dense: a page has 64 elements, a head of it 32.
  CHECK(first.row(1, 3) == 6 * 64 + 32 + 3 * 8);
  CHECK(first.row(0, 4) == -1);
  CHECK(first.row(0, 9) == -1);
  CHECK(second.row(0, 2) == 2 * 8);
  CHECK(second.row(0, 4) == -1);
  CHECK(second.row(0, 8) == -1);
  buffers.bounds.k_pages = 6;  // this call brings fewer pages
  CHECK(host_rows(p, buffers, kK, 0).row(1, 3) == -1);
}
