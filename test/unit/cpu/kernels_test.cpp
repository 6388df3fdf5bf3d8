#include "engine/cpu/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/element.hpp"
#include "base/enum_names.hpp"
#include "isas.hpp"
#include "problem/dropout.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cpu;
using namespace attngraph::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> normal_values(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = normal(random);
  return values;
}

/// A matrix in memory of any type; the elements between its rows are NaN.
struct Matrix {
  Matrix(std::mt19937& random, int64_t num_rows, int64_t dim, int64_t dim_stride, DataType type)
      : bytes(static_cast<size_t>(num_rows * (dim * dim_stride + 3) * element_bytes(type))) {
    const int64_t stride = dim * dim_stride + 3;
    for (int64_t i = 0; i < num_rows * stride; ++i) write_real(bytes.data(), type, i, kNan);
    std::normal_distribution<double> normal;
    for (int64_t r = 0; r < num_rows; ++r) {
      addresses.push_back(bytes.data() + r * stride * element_bytes(type));
      for (int64_t d = 0; d < dim; ++d)
        write_real(bytes.data(), type, r * stride + d * dim_stride, normal(random));
    }
    rows = {addresses.data(), num_rows, dim, dim_stride, type};
  }
  double at(int64_t r, int64_t d) const {
    return read_real(addresses[static_cast<size_t>(r)], rows.dtype, d * rows.dim_stride);
  }

  std::vector<std::byte> bytes;
  std::vector<const std::byte*> addresses;
  Rows rows;
};

int64_t padded(int64_t n) { return (n + 31) / 32 * 32; }

/// Runs op(a) op(b) through the packings and compares every element with double precision.
void check_products(const Kernels& k, const Products& products, DataType type, int64_t m, int64_t n,
                    int64_t depth) {
  std::mt19937 random(static_cast<uint32_t>(m * 10000 + n * 100 + depth));
  const int64_t stride = depth % 3 == 0 ? 2 : 1,
                words = (depth + products.k_per_word - 1) / products.k_per_word;
  const Matrix a(random, m, depth, stride, type), b_cols(random, n, depth, stride, type),
      b_rows(random, depth, n, stride, type);
  std::vector<float> a_words(static_cast<size_t>(m * padded(words)));
  products.load_rows(a.rows, {a_words.data(), padded(words)});
  const double rounding = 4e-7 * std::sqrt(static_cast<double>(depth)) + 1e-6;
  for (const bool transposed : {true, false}) {
    std::vector<float> panels(static_cast<size_t>(padded(n) * words)),
        c(static_cast<size_t>(m * padded(n)), 1.0F);
    (transposed ? products.pack_cols : products.pack_rows)((transposed ? b_cols : b_rows).rows,
                                                           {panels.data(), words * k.panel_cols});
    Gemm g{a_words.data(), padded(words), 1, panels.data(), words * k.panel_cols, c.data(), padded(n), m, n,
           words,          true};
    products.gemm(g);
    double worst = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double want = 1, size = 1;
        for (int64_t p = 0; p < depth; ++p) {
          const double term = a.at(i, p) * (transposed ? b_cols.at(j, p) : b_rows.at(p, j));
          want += term;
          size += std::fabs(term);
        }
        worst = std::max(worst, std::fabs(c[static_cast<size_t>(i * padded(n) + j)] - want) / size);
      }
    INFO(name_of(k.isa) << ' ' << name_of(type) << ' ' << m << 'x' << n << 'x' << depth << ' ' << transposed);
    CHECK(worst < rounding);
  }
}

}  // namespace

TEST_CASE("matrix products agree with double precision for every shape of edge", "[cpu]") {
  for (const CpuIsa isa : isas_here()) {
    const Kernels& k = kernels(isa);
    for (const int64_t m : {1, 5, 6, 7, 12, 13, 96})
      for (const int64_t n : {1, 8, 15, 16, 17, 33, 80})
        for (const int64_t depth : {1, 2, 7, 16, 33, 128}) {
          for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16})
            check_products(k, k.f32, type, m, n, depth);
          if (k.bf16.k_per_word == 2) check_products(k, k.bf16, DataType::kBf16, m, n, depth);
        }
  }
}

TEST_CASE("a product's operand may be read transposed, from a tile", "[cpu]") {
  for (const CpuIsa isa : isas_here()) {
    const Kernels& k = kernels(isa);
    for (const Products* products : {&k.f32, &k.bf16}) {
      if (products->k_per_word == 0) continue;
      for (const int64_t rows : {1, 2, 31, 96}) {
        constexpr int64_t kCols = 45, kRow = 64, kDim = 40;
        std::mt19937 random(static_cast<uint32_t>(rows));
        std::vector<float> tile = normal_values(random, rows * kRow), out(static_cast<size_t>(kCols * 64));
        const DataType type = products->k_per_word == 2 ? DataType::kBf16 : DataType::kF32;
        const Matrix b(random, rows, kDim, 1, type);
        const int64_t words = (rows + products->k_per_word - 1) / products->k_per_word;
        std::vector<float> narrow(static_cast<size_t>((rows + 1) * kRow)),
            panels(static_cast<size_t>(words * 64));
        products->pack_rows(b.rows, {panels.data(), words * k.panel_cols});
        Gemm g{tile.data(), 1,    kRow,  panels.data(), words * k.panel_cols, out.data(), 64,
               kCols,       kDim, words, false};
        if (products->narrow_transposed != nullptr) {
          products->narrow_transposed(tile.data(), kRow, rows, kCols, narrow.data(), kRow);
          g.a = narrow.data();
        }
        products->gemm(g);
        // bfloat16 rounds the tile to 2^-9 relative.
        const double tolerance = products->k_per_word == 2 ? 0x1p-8 : 1e-6;
        double worst = 0;
        for (int64_t j = 0; j < kCols; ++j)
          for (int64_t d = 0; d < kDim; ++d) {
            double want = 0, size = 1;
            for (int64_t r = 0; r < rows; ++r) {
              const double term = double{tile[static_cast<size_t>(r * kRow + j)]} * b.at(r, d);
              want += term;
              size += std::fabs(term);
            }
            worst = std::max(worst, std::fabs(out[static_cast<size_t>(j * 64 + d)] - want) / size);
          }
        INFO(name_of(isa) << " rows " << rows);
        CHECK(worst < tolerance);
      }
    }
  }
}

TEST_CASE(
    "softmax rows have exponentials within 3e-7, beside their arguments' rounding, and zeros where nothing "
    "is kept",
    "[cpu]") {
  constexpr size_t kRows = 19, kRow = 96;  // a group of any vector, and a rest
  for (const CpuIsa isa : isas_here())
    for (const int64_t padded : {16, 48, 64}) {
      INFO(name_of(isa) << ", " << padded << " columns");
      std::mt19937 random(7);
      std::vector<float> x = normal_values(random, kRows * kRow);
      for (float& v : x) v *= 12.0F;
      for (size_t r = 0; r < kRows; ++r) x[r * kRow + r % 16] = -kInf;
      std::fill_n(x.begin() + 4 * kRow, kRow, -kInf);  // a row that keeps nothing
      const std::vector<float> before = x;
      std::vector<float> max(kRows + kMaxLanes, -kInf), sum(kRows + kMaxLanes, 0.0F), correction(kRows, kNan);
      max[5] = 1000.0F, sum[5] = 2.0F;  // a row whose earlier keys outweigh these
      max[6] = -18.0F, sum[6] = 3.0F;   // and one that they add to
      max[kRows] = sum[kRows] = 7.0F;   // another tile's
      kernels(isa).softmax({x.data(), kRow, kRows, padded, 0.5F, max.data(), sum.data(), correction.data()});
      CHECK((max[kRows] == 7.0F && sum[kRows] == 7.0F));
      for (size_t r = 0; r < kRows; ++r) {
        if (r == 4) {
          CHECK((max[r] == -kInf && sum[r] == 0.0F));
          CHECK(std::all_of(&x[r * kRow], &x[r * kRow] + padded, [](float p) { return p == 0.0F; }));
          continue;
        }
        const double old_max = r == 5   ? 1000.0
                               : r == 6 ? -18.0
                                        : -INFINITY,
                     old_sum = r == 5   ? 2
                               : r == 6 ? 3
                                        : 0;
        double want_max = old_max;
        for (size_t j = 0; j < static_cast<size_t>(padded); ++j)
          want_max = std::max<double>(want_max, before[r * kRow + j]);
        CHECK(max[r] == static_cast<float>(want_max));
        CHECK(correction[r] == Approx(std::exp2(0.5 * (old_max - want_max))).epsilon(1e-6));
        double want_sum = old_sum * std::exp2(0.5 * (old_max - want_max));
        for (size_t j = 0; j < static_cast<size_t>(padded); ++j) {
          const double argument = 0.5 * (before[r * kRow + j] - want_max), want = std::exp2(argument);
          // The difference is rounded; half of it is exact.
          const double argument_rounding = std::isinf(argument) ? 0.0 : std::fabs(argument) * 0x1p-24;
          CHECK(x[r * kRow + j] == Approx(want).epsilon(3e-7 + argument_rounding).margin(1e-37));
          want_sum += want;
        }
        CHECK(sum[r] == Approx(want_sum).epsilon(1e-6));
      }
    }
}

TEST_CASE("scores at the ends of float32, which units of log2 do not hold, keep their weights", "[cpu]") {
  constexpr float kMost = std::numeric_limits<float>::max();
  struct Row {
    float x[16];
    float max;
    int64_t ones;  ///< keys at the maximum; the others weigh nothing
  };
  const std::vector<Row> rows = {
      {{-kMost, -kMost, -kMost, -kInf, -kMost}, -kMost, 4},
      {{-kMost, -2.5e38F, -3e38F, -2.5e38F, -kMost}, -2.5e38F, 2},
      {{kMost, -kMost, 3e38F, -kInf, 0.0F}, kMost, 1},
      {{-3e9F, 3e9F, 3e9F, 3e9F, -kInf}, 3e9F, 3},  // their rounding in units of log2 is beyond 2^127
  };
  for (const CpuIsa isa : isas_here())
    for (const Row& row : rows) {
      INFO(name_of(isa) << " at " << row.max);
      std::vector<float> x(16, -kInf), dp(16, 3.0F);
      std::copy_n(row.x, 5, x.begin());
      std::vector<float> scores = x, max(1 + kMaxLanes, -kInf), sum(1 + kMaxLanes, 0.0F), correction(1);
      kernels(isa).softmax({x.data(), 16, 1, 16, 1.442695F, max.data(), sum.data(), correction.data()});
      CHECK(max[0] == row.max);
      CHECK(sum[0] == static_cast<float>(row.ones));

      const float delta = 1.0F;
      kernels(isa).gradient({scores.data(), dp.data(), 16, 1, 16, 1.0F, &row.max, &delta, nullptr});
      for (size_t j = 0; j < 16; ++j) {
        const float want = j < 5 && row.x[j] == row.max ? 1.0F : 0.0F;
        CHECK(x[j] == want);
        CHECK(scores[j] == want);
        CHECK(dp[j] == 2.0F * want);
      }
    }
}

TEST_CASE("gradients take the exponential of a score less its stats", "[cpu]") {
  for (const CpuIsa isa : isas_here()) {
    INFO(name_of(isa));
    std::vector<float> x(16, -kInf), dp(16, 3.0F);
    for (size_t j = 0; j < 5; ++j) x[j] = 4.0F - static_cast<float>(j);
    const std::vector<float> scores = x;
    const float stats = 2.5F, delta = 1.0F, scale = 0.5F;
    kernels(isa).gradient({x.data(), dp.data(), 16, 1, 16, scale, &stats, &delta, nullptr});
    for (size_t j = 0; j < 16; ++j) {
      const double want = std::exp(static_cast<double>(scores[j]) * scale - stats);
      CHECK(std::abs(x[j] - want) <= 1e-6 * want);  // ten roundings of float32 at most
      CHECK(std::abs(dp[j] - 2 * want) <= 2e-6 * want);
    }
  }
}

TEST_CASE("softcap is exact to 4e-7 of x from tiny to saturated scores", "[cpu]") {
  for (const CpuIsa isa : isas_here()) {
    for (const double cap : {0.5, 30.0, 1e4}) {
      std::vector<float> x(64), slope(64);
      for (size_t j = 0; j < 64; ++j)
        x[j] = static_cast<float>(std::exp2(static_cast<double>(j) / 4 - 8) * (j % 2 ? -1 : 1));
      const std::vector<float> before = x;
      ScoreRow row;
      row.x = x.data();
      row.padded = row.keep_end = 64;
      row.scale = static_cast<float>(1 / cap);
      row.softcap = static_cast<float>(cap);
      row.softcap_slope = slope.data();
      kernels(isa).score(row);
      for (size_t j = 0; j < 64; ++j) {
        const double t = std::tanh(before[j] / cap);
        CHECK(x[j] == Approx(cap * t).epsilon(4e-7));
        CHECK(slope[j] == Approx(1 - t * t).margin(5e-7));
      }
    }
  }
}

TEST_CASE("what is not kept becomes minus infinity, be the score or the bias NaN", "[cpu]") {
  for (const CpuIsa isa : isas_here()) {
    std::vector<float> x(64, kNan), bias(64, kNan);
    std::vector<std::byte> mask(64, std::byte{0});
    for (const size_t j : {9U, 20U}) x[j] = 1.0F, bias[j] = 2.0F, mask[j] = std::byte{1};
    mask[3] = mask[50] = std::byte{1};  // outside the range
    ScoreRow row;
    row.x = x.data();
    row.padded = 64;
    row.keep_begin = 5;
    row.keep_end = 49;
    row.bias = bias.data();
    row.mask = mask.data();
    row.slope = 0.5F;
    row.distance = -7.0F;
    kernels(isa).score(row);
    for (size_t j = 0; j < 64; ++j) {
      const double want = 1.0 + 2.0 + 0.5 * (static_cast<double>(j) - 7.0);
      if (j == 9 || j == 20)
        CHECK(x[j] == Approx(want).epsilon(1e-6));
      else
        CHECK(x[j] == -kInf);
    }
  }
}

TEST_CASE("dropout keeps what the contract's word says", "[cpu]") {
  const Dropout dropout{0x123456789abcdef0U, 0x0fedcba987654321U, Dropout::threshold_of(0.3)};
  for (const CpuIsa isa : isas_here())
    for (const int64_t first_row : {0, 5, 8, 13}) {
      constexpr int64_t kRows = 21, kCols = 96, kKey = 64;
      std::vector<float> kept(kRows * kCols, kNan);
      kernels(isa).dropout({dropout.seed, dropout.offset, dropout.threshold, 11, first_row, kRows, kKey, 2.0F,
                            kept.data(), kCols, kCols});
      int wrong = 0;
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t j = 0; j < kCols; ++j)
          wrong += kept[static_cast<size_t>(r * kCols + j)] !=
                   (dropout.keeps(11, first_row + r, kKey + j) ? 2.0F : 0.0F);
      INFO(name_of(isa) << " from row " << first_row);
      CHECK(wrong == 0);
    }
}

TEST_CASE("stored elements are rounded once, to nearest even, NaN and subnormals included", "[cpu]") {
  const std::vector<float> x = {0.0F,  -0.0F,  1.0F,     1.00390625F, 1.01171875F, kInf,
                                -kInf, kNan,   65519.0F, 65520.0F,    1e-7F,       6e-8F,
                                2e-8F, 1e-40F, 3.3e38F,  1.0009765F,  1.0004883F};
  for (const CpuIsa isa : isas_here())
    for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16})
      for (const int64_t stride : {1, 3}) {
        std::vector<float> in(x);
        in.resize(32);
        std::vector<std::byte> out(32 * 3 * 4);
        kernels(isa).store(in.data(), static_cast<int64_t>(x.size()), 1.0F, out.data(), type, stride);
        for (size_t i = 0; i < x.size(); ++i) {
          std::vector<std::byte> want(4);
          write_real(want.data(), type, 0, double{x[i]});
          INFO(name_of(isa) << ' ' << name_of(type) << ' ' << x[i]);
          if (std::isnan(x[i]))
            CHECK(std::isnan(read_real(out.data(), type, static_cast<int64_t>(i) * stride)));
          else
            CHECK(read_real(out.data(), type, static_cast<int64_t>(i) * stride) ==
                  read_real(want.data(), type, 0));
        }
      }
}

TEST_CASE("few rows are multiplied where the others lie, an absent one as zeros", "[cpu]") {
  constexpr int64_t kKeys = 19;  // more than a tile of any vector has, and a rest
  const int64_t num_rows = GENERATE(1, 2, 3, 4, 7);
  const bool has_absent = GENERATE(false, true);
  const auto count = [&](int64_t row) { return static_cast<size_t>(num_rows * row); };
  for (const CpuIsa isa : isas_here())
    for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16})
      for (const int64_t dim : {0, 1, 7, 64, 72}) {
        std::mt19937 random(static_cast<uint32_t>(dim));
        Matrix keys(random, kKeys, dim, 1, type);
        if (has_absent) keys.addresses[5] = nullptr;
        const auto key = [&](int64_t j, int64_t d) { return has_absent && j == 5 ? 0.0 : keys.at(j, d); };
        std::vector<float> a = normal_values(random, num_rows * 96), scores(count(32)), sums(count(96), 0.5F);
        for (int64_t r = 0; r < num_rows; ++r) std::fill_n(a.begin() + r * 96 + dim, 96 - dim, 0.0F);
        const Upcoming next{keys.rows.row, kKeys, dim * element_bytes(type)};
        kernels(isa).dots({a.data(), 96, num_rows, keys.rows, scores.data(), 32, next});
        kernels(isa).weighted_sum({scores.data(), 32, num_rows, keys.rows, sums.data(), 96, next});
        INFO(name_of(isa) << ' ' << name_of(type) << ", " << num_rows << " rows of " << dim);
        for (int64_t r = 0; r < num_rows; ++r) {
          for (int64_t j = 0; j < kKeys; ++j) {
            double want = 0;
            for (int64_t d = 0; d < dim; ++d) want += double{a[static_cast<size_t>(r * 96 + d)]} * key(j, d);
            CHECK(scores[static_cast<size_t>(r * 32 + j)] == Approx(want).epsilon(1e-5).margin(1e-5));
          }
          for (int64_t d = 0; d < dim; ++d) {
            double want = 0.5;
            for (int64_t j = 0; j < kKeys; ++j)
              want += double{scores[static_cast<size_t>(r * 32 + j)]} * key(j, d);
            CHECK(sums[static_cast<size_t>(r * 96 + d)] == Approx(want).epsilon(1e-5).margin(1e-4));
          }
        }
      }
}
