#pragma once

#include <array>
#include <cstdint>

#include "engine/cpu/kernels.hpp"
#include "problem/dropout.hpp"
#include "problem/host_rows.hpp"
#include "problem/layout.hpp"

namespace attngraph::cpu {

inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLn2 = 0.6931471805599453;

/// Addresses and lengths of one sequence in one call.
struct Sequence {
  Sequence(const Problem& problem, const Buffers& buffers, int64_t batch);

  const Problem& problem;
  const Buffers& buffers;
  int64_t batch, q_len, kv_len;
  std::array<HostRows, kNumRoles> rows;  ///< of the tensors that have rows or heads

  /// Address of element (head, row, 0) in storage; null on a page outside the container.
  std::byte* at(Role role, int64_t head, int64_t row) const;
  /// A float tensor's element (head, row, 0).
  float float_at(Role role, int64_t head, int64_t row) const;
  /// Rows of `role` with their addresses in `addresses`, null on absent pages.
  Rows gather(Role role, int64_t head, KeyRange range, const std::byte** addresses) const;
  /// One row of `role`, whose address `address` keeps.
  Rows one(Role role, int64_t head, int64_t row, const std::byte*& address) const;
  /// x * factor into one row of `role`.
  void write(const Kernels& kernels, Role role, int64_t head, int64_t row, const float* x,
             float factor) const;
};

/// Keys that rows of a tile see: at least one of them, and all of them.
struct TileKeys {
  KeyRange any = {INT64_MAX, 0}, all = {0, INT64_MAX};

  void add(KeyRange row);
  bool touches(int64_t begin, int64_t end) const { return any.begin < end && any.end > begin; }
  bool covers(int64_t begin, int64_t end) const { return all.begin <= begin && all.end >= end; }
};

/// What a row of scores goes through before the softmax, and whether a tile needs none of it.
class Scores {
 public:
  Scores(const Problem& problem, const Kernels& kernels);

  /// True when every score is scale * q.k: scores then stay q.k, else apply() makes them natural.
  bool plain() const { return plain_; }
  /// A score's factor to natural units; positive.
  float to_natural() const { return to_natural_; }
  /// A difference's factor to units of log2; positive.
  float to_base_2() const { return to_base_2_; }

  struct Row {
    float* x = nullptr;
    int64_t head = 0, i = 0;
    int64_t first_key = 0, count = 0, padded = 0;
    float* softcap_slope = nullptr;
    const std::byte* present = nullptr;  ///< by key of the tile: 0 on an absent page; null: all there
    float* bias_scratch = nullptr;       ///< `padded` floats
    std::byte* mask_scratch = nullptr;   ///< `padded` bytes
  };
  void apply(const Sequence& sequence, const Row& row) const;
  /// Of a plain score: makes -inf of the keys that the row does not see or that are absent, and nothing else.
  void hide(const Sequence& sequence, const Row& row) const;

 private:
  KeyRange kept(const Sequence& sequence, const Row& row) const;

  const Problem& problem_;
  const Kernels& kernels_;
  bool plain_;
  float to_natural_, to_base_2_;
};

/// The launch's dropout: seed and offset as the call brings them.
Dropout dropout_of(const Problem& problem, const Buffers& buffers);

/// Dropout factors of rows i .. i+count-1 of one head, keys from `j` on.
struct DropoutRows {
  int64_t head_index = 0, i = 0, count = 0, j = 0;
  float* kept = nullptr;
  int64_t kept_row = 0, padded = 0;
};
void draw(const Kernels& kernels, const Problem& problem, const Dropout& dropout, const DropoutRows& rows);

}  // namespace attngraph::cpu
