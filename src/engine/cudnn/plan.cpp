#include "engine/cudnn/plan.hpp"

#include <array>
#include <bit>
#include <numbers>

#include "base/message.hpp"
#include "device/device.hpp"
#include "engine/cudnn/bias.hpp"
#include "engine/cudnn/lower.hpp"
#include "problem/layout.hpp"

namespace attngraph::cudnn {
namespace {

/// Entries of the largest variant pack: backward of ragged tensors with every input and scalar has about 40.
constexpr size_t kMostEntries = 64;

int32_t bits_of(const OpTensor& scalar) {
  if (scalar.dtype == DataType::kI32) return static_cast<int32_t>(scalar.value);
  return std::bit_cast<int32_t>(static_cast<float>(scalar.value));
}

BoundLengths bound_lengths(const Problem& p, const Buffers& buffers, Side side) {
  const bool is_q = side == Side::kQ;
  const Role plain = is_q ? Role::kSeqLenQ : Role::kSeqLenKv,
             sums = is_q ? Role::kCuSeqLenQ : Role::kCuSeqLenKv;
  const Role role = p.has(plain) ? plain : sums;
  BoundLengths lengths;
  lengths.data = buffers[role];
  lengths.dtype = p[role].dtype, lengths.stride = batch_stride(p[role]), lengths.cumulative = role == sums;
  lengths.declared = is_q ? p.q_len : p.kv_len;
  return lengths;
}

}  // namespace

Result<std::shared_ptr<const Piece>> make_piece(const Library& library, const Problem& problem,
                                                std::optional<int64_t> proposal, cudnnHandle_t handle) {
  OpGraph graph = lower(problem);
  auto proposals = Proposals::make(library, graph, handle);
  if (!proposals.ok()) return proposals.status();
  auto built = proposal ? proposals->build(*proposal) : proposals->build_first();
  if (!built.ok()) return built.status();
  auto piece = std::make_shared<Piece>(Piece{problem, std::move(graph), std::move(*built), {}, {}, {}});
  for (size_t i = 0; i < piece->graph.tensors.size(); ++i) {
    const OpTensor& t = piece->graph.tensors[i];
    if (t.place == Place::kVirtual) continue;
    piece->ids.push_back(unique_id(i));
    piece->entries.push_back({t.place, t.role, t.scratch, piece->scalars.size()});
    if (t.place == Place::kScalar) piece->scalars.push_back(bits_of(t));
  }
  if (piece->entries.size() > kMostEntries)
    return fail(Code::kInternal, "cudnn: the graph has ", piece->entries.size(),
                " tensors in memory; at most ", kMostEntries, " were thought possible");
  return std::shared_ptr<const Piece>(std::move(piece));
}

struct CudnnPlan::Call {
  const Buffers& buffers;
  const Slice& slice;
  const PlacedWorkspace& workspace;
  void* stream;
  const Piece& piece;

  template <class T>
  T* at(RegionId id) const {
    return id.index < 0 ? nullptr : reinterpret_cast<T*>(workspace[id]);
  }
};

CudnnPlan::CudnnPlan(Backend backend, const Problem& problem,
                     std::vector<std::shared_ptr<const Piece>> pieces, const Regions& regions, int device)
    : backend_(std::move(backend)),
      problem_(problem),
      pieces_(std::move(pieces)),
      regions_(regions),
      device_(device),
      prepares_(has_lengths(problem)),
      makes_bias_(makes_bias(problem)),
      copies_stats_(problem.pass == Pass::kBackward && copies_stats(problem)),
      settles_(prepares_ || band_leaves_rows(problem) ||
               (problem.pass == Pass::kBackward
                    ? band_leaves_keys(problem)
                    : problem.has(Role::kBias) || makes_bias_ ||
                          (problem.has(Role::kStats) && problem.stats_base != StatsBase::kE))) {}

Status CudnnPlan::run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
                      void* stream) const {
  const SliceShape shape{slice.batch_end - slice.batch_begin, slice.kv_head_end - slice.kv_head_begin};
  const Piece* piece = nullptr;
  for (const auto& candidate : pieces_)
    if (candidate->problem.batch == shape.batch && candidate->problem.kv_heads == shape.kv_heads)
      piece = candidate.get();
  if (piece == nullptr)
    return fail(Code::kInternal, "cudnn: a slice has ", shape.batch, " sequences and ", shape.kv_heads,
                " kv heads; the plan was made for other slices");
  const Call call{buffers, slice, workspace, stream, *piece};
  if (prepares_) ATTNGRAPH_RETURN_IF_ERROR(prepare_lengths(prepare_params(call), stream));
  if (makes_bias_) ATTNGRAPH_RETURN_IF_ERROR(make_bias(bias_params(call), stream));
  if (copies_stats_) ATTNGRAPH_RETURN_IF_ERROR(copy_stats(stats_params(call), stream));
  ATTNGRAPH_RETURN_IF_ERROR(execute(call));
  if (settles_) ATTNGRAPH_RETURN_IF_ERROR(settle_rows(settle_params(call), stream));
  if (problem_.has(Role::kDsink)) ATTNGRAPH_RETURN_IF_ERROR(sum_dsink(sink_params(call), stream));
  return problem_.has(Role::kDbias) ? store_dbias(call) : Status();
}

Status CudnnPlan::execute(const Call& call) const {
  const Piece& piece = call.piece;
  std::array<void*, kMostEntries> pointers;
  for (size_t i = 0; i < piece.entries.size(); ++i) {
    const Piece::Entry& entry = piece.entries[i];
    switch (entry.place) {
      case Place::kOperand:
        pointers[i] = data(call, entry.role);
        break;
      case Place::kOffsets:
        pointers[i] = call.at<void>(regions_.offsets[static_cast<size_t>(entry.role)]);
        break;
      case Place::kScratch:
        pointers[i] = call.at<void>(regions_.scratch[static_cast<size_t>(entry.scratch)]);
        break;
      default:
        pointers[i] = const_cast<int32_t*>(&piece.scalars[entry.scalar]);
    }
  }
  const auto device = device::current();
  if (!device.ok()) return device.status();
  if (*device != device_)
    return fail(Code::kBadBinding, "cudnn: the current device is ", *device, "; must be ", device_,
                ", which the plan was made on");
  const auto handle = backend_.handles->take(device_, call.stream);
  if (!handle.ok()) return handle.status();
  // A finalized pack takes no other pointers (cuDNN 9.19 answers BAD_PARAM), so each call makes one.
  const Library& library = *backend_.library;
  Descriptor pack(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(piece.ids))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers.data(), piece.ids.size()))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, call.at<void>(regions_.backend));
  ATTNGRAPH_RETURN_IF_ERROR(pack.finalize().status());
  return library.status_of("cudnnBackendExecute",
                           library->execute(handle->raw(), piece.built.plan.raw(), pack.raw()));
}

std::byte* CudnnPlan::data(const Call& call, Role role) const {
  const Operand& t = problem_[role];
  const int64_t first_head = call.slice.kv_head_begin * (side_of(role) == Side::kKv ? 1 : problem_.group());
  const int64_t elems = call.slice.batch_begin * batch_stride(t) + first_head * head_stride(t);
  return call.buffers[role] + elems * element_bytes(t.dtype);
}

RowTensor CudnnPlan::rows(const Call& call, Role role) const {
  const Operand& t = call.piece.problem[role];
  RowTensor rows{data(call, role), t.dtype, batch_stride(t), head_stride(t), len_stride(t), dim_stride(t)};
  rows.offsets = t.ragged ? call.at<int64_t>(regions_.offsets[static_cast<size_t>(role)]) : nullptr;
  rows.heads = heads(t), rows.len = len(t), rows.dim = dim(t);
  return rows;
}

RowFacts CudnnPlan::facts(const Call& call) const {
  RowFacts facts = row_facts(problem_.band);
  facts.q_len = call.at<int32_t>(regions_.scratch[static_cast<size_t>(Scratch::kQLen)]);
  facts.kv_len = call.at<int32_t>(regions_.scratch[static_cast<size_t>(Scratch::kKvLen)]);
  facts.declared_q_len = problem_.q_len, facts.declared_kv_len = problem_.kv_len;
  facts.batch = call.piece.problem.batch;
  return facts;
}

PrepareParams CudnnPlan::prepare_params(const Call& call) const {
  PrepareParams params;
  params.batch_begin = call.slice.batch_begin, params.batch = call.piece.problem.batch;
  params.q = bound_lengths(problem_, call.buffers, Side::kQ);
  params.kv = bound_lengths(problem_, call.buffers, Side::kKv);
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    const Operand& t = problem_[role];
    if (!t.present || side_of(role) == Side::kNone) continue;
    params.offsets[params.num_offsets++] = {t.ragged ? call.buffers.offsets[i] : nullptr,
                                            t.offsets_dtype,
                                            t.offsets_stride,
                                            side_of(role),
                                            {heads(t), len(t), dim(t), len_stride(t), t.multiplier},
                                            call.buffers.bounds.slots(side_of(role)),
                                            batch_stride(t),
                                            call.at<int64_t>(regions_.offsets[i])};
  }
  params.q_len = call.at<int32_t>(regions_.scratch[static_cast<size_t>(Scratch::kQLen)]);
  params.kv_len = call.at<int32_t>(regions_.scratch[static_cast<size_t>(Scratch::kKvLen)]);
  params.packed_offsets = call.at<int64_t>(regions_.scratch[static_cast<size_t>(Scratch::kPackedOffsets)]);
  params.packed_row = call.piece.problem.q_heads, params.packed_slots = packed_slots(call.piece.problem);
  return params;
}

/// kStats or kRowSums, packed or dense.
RowTensor CudnnPlan::row_array(const Call& call, Scratch scratch) const {
  const Problem& p = call.piece.problem;
  RowTensor rows;
  rows.data = call.at<std::byte>(regions_.scratch[static_cast<size_t>(scratch)]);
  rows.offsets = call.at<int64_t>(regions_.scratch[static_cast<size_t>(Scratch::kPackedOffsets)]);
  const bool is_packed = rows.offsets != nullptr;
  rows.batch_stride = p.q_heads * p.q_len;
  rows.head_stride = is_packed ? 1 : p.q_len, rows.len_stride = is_packed ? p.q_heads : 1;
  rows.heads = p.q_heads, rows.len = p.q_len, rows.dim = 1;
  return rows;
}

/// A user's bias, mask or dbias, or none.
Matrix CudnnPlan::matrix(const Call& call, Role role) const {
  if (!problem_.has(role)) return {};
  return {data(call, role), problem_[role].dtype, problem_[role].stride};
}

Matrix CudnnPlan::own_matrix(const Call& call) const {
  const Operand own = own_bias(call.piece.problem);
  return {call.at<std::byte>(regions_.scratch[static_cast<size_t>(Scratch::kBias)]), own.dtype, own.stride};
}

BiasParams CudnnPlan::bias_params(const Call& call) const {
  BiasParams params;
  params.facts = facts(call);
  params.to = own_matrix(call), params.extent = own_bias(call.piece.problem).extent;
  params.bias = matrix(call, Role::kBias), params.mask = matrix(call, Role::kMask);
  if (!puts_slopes_in_bias(problem_)) return params;
  const Operand& slopes = problem_[Role::kAlibiSlopes];
  params.slopes = data(call, Role::kAlibiSlopes);
  params.slopes_batch_stride = batch_stride(slopes), params.slopes_head_stride = head_stride(slopes);
  return params;
}

StatsParams CudnnPlan::stats_params(const Call& call) const {
  StatsParams params;
  params.facts = facts(call);
  params.from = rows(call, Role::kStats);
  params.to = row_array(call, Scratch::kStats);
  params.factor = problem_.stats_base == StatsBase::k2 ? std::numbers::ln2_v<float> : 1.0f;
  return params;
}

SettleParams CudnnPlan::settle_params(const Call& call) const {
  SettleParams params;
  params.facts = facts(call);
  if (problem_.pass == Pass::kForward)
    params.bias = makes_bias_ ? own_matrix(call) : matrix(call, Role::kBias);
  for (const Role role : {Role::kO, Role::kStats, Role::kDq, Role::kDk, Role::kDv}) {
    if (!problem_.has(role) || !is_output(problem_, role)) continue;
    SettledTensor& t = params.tensors[params.num_tensors++];
    t.rows = rows(call, role);
    t.transposed = side_of(role) == Side::kKv;
    if (role != Role::kStats) continue;
    t.value = -std::numeric_limits<float>::infinity();
    if (problem_.stats_base == StatsBase::k2) t.factor = std::numbers::log2e_v<float>;
    if (problem_.has(Role::kSink))
      t.sink = data(call, Role::kSink), t.sink_stride = head_stride(problem_[Role::kSink]);
  }
  return params;
}

SinkParams CudnnPlan::sink_params(const Call& call) const {
  SinkParams params;
  params.facts = facts(call);
  params.stats = copies_stats_ ? row_array(call, Scratch::kStats) : rows(call, Role::kStats);
  params.row_sums = row_array(call, Scratch::kRowSums);
  params.sink = data(call, Role::kSink), params.dsink = data(call, Role::kDsink);
  params.sink_stride = head_stride(problem_[Role::kSink]);
  params.dsink_stride = head_stride(problem_[Role::kDsink]);
  params.is_first = call.slice.batch_begin == 0;
  return params;
}

Status CudnnPlan::store_dbias(const Call& call) const {
  const Operand& t = problem_[Role::kDbias];
  const std::array<int64_t, 4> extent = call.piece.problem[Role::kDbias].extent;
  const Matrix found{call.at<std::byte>(regions_.scratch[static_cast<size_t>(Scratch::kDbias)]), problem_.io,
                     packed_strides(extent)};
  if (regions_.dbias_sums.index < 0)
    return copy_matrix({found, matrix(call, Role::kDbias), extent}, call.stream);
  // Slices that a sum goes over are added up in float32, and the last one stores the sum.
  Matrix sums{call.at<std::byte>(regions_.dbias_sums), DataType::kF32, packed_strides(t.extent)};
  Matrix part = sums;
  const int64_t first_head = call.slice.kv_head_begin * problem_.group();
  const int64_t first = (t.extent[0] > 1 ? call.slice.batch_begin * sums.stride[0] : 0) +
                        (t.extent[1] > 1 ? first_head * sums.stride[1] : 0);
  part.data += first * element_bytes(DataType::kF32);
  ATTNGRAPH_RETURN_IF_ERROR(copy_matrix({found, part, extent, /*adds=*/true}, call.stream));
  if (!call.slice.is_last) return {};
  return copy_matrix({sums, {call.buffers[Role::kDbias], t.dtype, t.stride}, t.extent}, call.stream);
}

std::string CudnnPlan::describe() const {
  std::string line = pieces_.front()->built.engine, word;
  const auto add = [&](bool runs, const char* kernel) {
    if (!runs) return;
    line += word + kernel;
    word = " and ";
  };
  word = ", after ";
  add(prepares_, "prepare_lengths");
  add(makes_bias_, "make_bias");
  add(copies_stats_, "copy_stats");
  word = ", before ";
  add(settles_, "settle_rows");
  add(problem_.has(Role::kDsink), "sum_dsink");
  add(problem_.has(Role::kDbias), "copy_matrix");
  return line;
}

}  // namespace attngraph::cudnn
