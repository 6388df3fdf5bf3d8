#pragma once

#include <cstddef>
#include <cstdint>

#include "base/element.hpp"
#include "problem/host_rows.hpp"

namespace attngraph::reference {

/// One tensor of one sequence in host memory, its elements read and written as double.
class Rows {
 public:
  Rows(const Problem& problem, const Buffers& buffers, Role role, int64_t batch)
      : operand_(problem[role]), data_(buffers[role]), rows_(host_rows(problem, buffers, role, batch)) {}

  bool present() const { return operand_.present; }
  /// False for a row on a page outside the container.
  bool holds(int64_t head, int64_t row) const { return rows_.row(head, row) >= 0; }

  double at(int64_t head, int64_t row, int64_t dim = 0) const {
    return read_real(data_, operand_.dtype, element(head, row, dim));
  }
  bool is_true(int64_t head, int64_t row, int64_t dim) const {
    return data_[element(head, row, dim)] != std::byte{0};
  }
  void put(int64_t head, int64_t row, int64_t dim, double value) const {
    write_real(data_, operand_.dtype, element(head, row, dim), value);
  }

  void read_row(int64_t head, int64_t row, double* values) const {
    for (int64_t d = 0; d < dim(operand_); ++d) values[d] = at(head, row, d);
  }
  void write_row(int64_t head, int64_t row, const double* values) const {
    for (int64_t d = 0; d < dim(operand_); ++d) put(head, row, d, values[d]);
  }
  /// Rows 0 .. len-1 as [len, dim]; absent ones are left out.
  void read_rows(int64_t head, int64_t len, double* values) const {
    for (int64_t row = 0; row < len; ++row)
      if (holds(head, row)) read_row(head, row, values + row * dim(operand_));
  }
  void write_rows(int64_t head, int64_t len, const double* values) const {
    if (!present()) return;
    for (int64_t row = 0; row < len; ++row) write_row(head, row, values + row * dim(operand_));
  }
  void fill_row(int64_t head, int64_t row, double value) const {
    for (int64_t d = 0; d < dim(operand_); ++d) put(head, row, d, value);
  }
  /// Writes the padding rows of a dense output; `len` rows belong to the sequence. A ragged output has
  /// none: what lies beyond its rows is not its own.
  void fill_padding(int64_t head, int64_t len, double value) const {
    if (!present() || operand_.ragged) return;
    for (int64_t row = len; row < attngraph::len(operand_); ++row) fill_row(head, row, value);
  }

 private:
  int64_t element(int64_t head, int64_t row, int64_t dim) const {
    return rows_.row(head, row) + dim * rows_.dim_stride;
  }

  const Operand& operand_;
  std::byte* data_;
  HostRows rows_;
};

}  // namespace attngraph::reference
