#include <cmath>
#include <span>

#include "base/checked.hpp"
#include "problem/layout.hpp"
#include "problem/validate.hpp"

namespace attngraph {
namespace {

using enum Role;

// --- roles ---------------------------------------------------------------------------------------

Status required_tensors_are_there(const Draft& draft) {
  static constexpr Role kForward[] = {kQ, kK, kV, kO}, kBackward[] = {kQ, kK, kV, kO, kDo, kStats};
  static constexpr Role kMerge[] = {kOA, kStatsA, kOB, kStatsB, kO};
  static constexpr std::pair<std::span<const Role>, const char*> kNeeds[] = {
      {kForward, "a forward"}, {kBackward, "every gradient"}, {kMerge, "a merge"}};  // by pass
  const auto& [roles, who] = kNeeds[static_cast<size_t>(draft.problem.pass)];
  for (const Role role : roles)
    if (!draft.has(role)) return refuse(draft, name_of(role), "is missing; ", who, " needs it");
  return {};
}

Status some_gradient_is_asked_for(const Draft& draft) {
  if (draft.problem.pass != Pass::kBackward) return {};
  for (size_t i = static_cast<size_t>(kDq); i < kNumRoles; ++i)
    if (draft.has(static_cast<Role>(i))) return {};
  return refuse(draft, "outputs", "ask for no gradient; must be at least one of dq, dk, dv, dbias, dsink, ",
                "dalibi_slopes");
}

Status gradients_have_primals(const Draft& draft) {
  for (size_t i = static_cast<size_t>(kDq); i < kNumRoles; ++i) {
    const Role gradient = static_cast<Role>(i), primal = *primal_of(gradient);
    if (draft.has(gradient) && !draft.has(primal))
      return refuse(draft, gradient, "is asked for without ", primal, "; must come with it");
  }
  return {};
}

Status lengths_come_in_one_form(const Draft& draft) {
  static constexpr std::pair<Role, Role> kPairs[] = {{kSeqLenQ, kCuSeqLenQ}, {kSeqLenKv, kCuSeqLenKv}};
  for (const auto& [plain, cumulative] : kPairs)
    if (draft.has(plain) && draft.has(cumulative))
      return refuse(draft, plain, "is given beside ", cumulative, " (", label(draft[cumulative]),
                    "); must be one of the two");
  return {};
}

// --- attributes ----------------------------------------------------------------------------------

Status scale_is_known(Draft& draft) {
  const auto& scale = draft.attributes.scale;
  if (scale && !std::isfinite(*scale)) return refuse(draft, "scale", "is ", *scale, "; must be finite");
  if (!scale && draft.problem.qk_dim == 0)
    return refuse(draft, "scale", "is absent with dim 0 of q; must be given, as 1 / sqrt(0) is not finite");
  draft.problem.scale = scale ? *scale : default_scale(draft.problem.qk_dim);
  return {};
}

Status softcap_is_a_bound(Draft& draft) {
  const double softcap = draft.attributes.softcap;
  if (!std::isfinite(softcap) || softcap < 0)
    return refuse(draft, "softcap", "is ", softcap, "; must be finite and at least 0");
  draft.problem.softcap = softcap;
  return {};
}

Status dropout_is_a_probability(Draft& draft) {
  const double p = draft.attributes.dropout_p;
  if (!(p >= 0 && p <= 1)) return refuse(draft, "dropout_p", "is ", p, "; must be between 0 and 1");
  draft.problem.dropout_p = p;
  if (draft.problem.draws_dropout() && !draft.has(kDropoutSeed))
    return refuse(draft, "dropout_seed", "is missing; dropout_p ", p, " needs it");
  return {};
}

Status band_sides_are_distances(Draft& draft) {
  const Band& band = draft.attributes.band;
  for (const auto& [side, name] : {std::pair{band.left, "band.left"}, std::pair{band.right, "band.right"}})
    if (side && (*side <= -kExtentBound || *side >= kExtentBound))
      return refuse(draft, name, "is ", *side, "; must have a magnitude below 2^61");
  draft.problem.band = band;
  return {};
}

Status capacities_are_counts(const Draft& draft) {
  const SdpaAttributes& a = draft.attributes;
  for (const auto& [slots, name] :
       {std::pair{a.max_total_q, "max_total_q"}, std::pair{a.max_total_kv, "max_total_kv"}})
    if (slots && *slots < 0) return refuse(draft, name, "is ", *slots, "; must not be negative");
  return {};
}

// --- storage -------------------------------------------------------------------------------------

Status check_footprint(const Draft& draft, Role role) {
  const Operand& t = draft.problem[role];
  const auto elems = footprint_elems(storage_axes(draft.problem, role).span());
  if (!elems.ok()) return refuse(draft, role, elems.status().message(), "; must fit int64");
  const auto bytes = checked_mul_add(*elems, element_bytes(t.dtype), 0, "footprint in bytes");
  if (!bytes.ok()) return refuse(draft, role, bytes.status().message(), "; must fit int64");
  if (!t.ragged) return {};
  const auto last = checked_mul_add(draft.problem.batch, t.offsets_stride, 1, "footprint of the offsets");
  if (!last.ok()) return refuse(draft, role, last.status().message(), "; must fit int64");
  const auto end = checked_mul_add(*last, element_bytes(t.offsets_dtype), 0, "bytes of the offsets");
  if (!end.ok()) return refuse(draft, role, end.status().message(), "; must fit int64");
  return {};
}

/// The axes on which an output's elements must be apart. The default capacity of a ragged output
/// bounds packings without gaps only, so it does not stretch a head-major layout: rows of one
/// sequence are all that can be held against it.
StorageAxes written_axes(const Draft& draft, Role role) {
  const SdpaAttributes& a = draft.attributes;
  Bounds bounds = declared_bounds(draft.problem);
  if (!a.max_total_q) bounds.q_slots = draft.problem.q_len;
  if (!a.max_total_kv) bounds.kv_slots = draft.problem.kv_len;
  return storage_axes(draft.problem, role, bounds);
}

Status check_output(const Draft& draft, Role role) {
  const StorageAxes axes = written_axes(draft, role);
  const Overlap overlap = self_overlap(axes.span());
  if (overlap == Overlap::kNone) return {};
  std::string shape;
  for (const Axis& axis : axes.span())
    shape += text(shape.empty() ? "" : ", ", axis.extent, " at stride ", axis.stride);
  if (overlap == Overlap::kTooIrregular)
    return refuse(draft, role, "strides are too irregular to prove that no elements overlap (", shape,
                  "); must nest, each stride beyond the span of the smaller ones");
  return refuse(draft, role, "elements overlap (", shape, "); must be apart in an output");
}

constexpr Status (*kRoleRules[])(const Draft&) = {required_tensors_are_there, some_gradient_is_asked_for,
                                                  gradients_have_primals, lengths_come_in_one_form};
constexpr Status (*kScoreRules[])(Draft&) = {scale_is_known, softcap_is_a_bound, dropout_is_a_probability,
                                             band_sides_are_distances};

}  // namespace

Status check_roles(const Draft& draft) {
  for (const auto rule : kRoleRules) ATTNGRAPH_RETURN_IF_ERROR(rule(draft));
  return {};
}

Status check_attributes(Draft& draft) {
  if (draft.problem.pass != Pass::kMerge)  // which has none of these
    for (const auto rule : kScoreRules) ATTNGRAPH_RETURN_IF_ERROR(rule(draft));
  draft.problem.stats_base = draft.attributes.stats_base;
  draft.problem.deterministic = draft.attributes.deterministic;
  return {};
}

Status check_footprints(Draft& draft) {
  ATTNGRAPH_RETURN_IF_ERROR(capacities_are_counts(draft));
  const auto q_slots = infer_slots(draft, Side::kQ), kv_slots = infer_slots(draft, Side::kKv);
  if (!q_slots.ok())
    return refuse(draft, "max_total_q", "is absent, and the ", q_slots.status().message(), "; must be given");
  if (!kv_slots.ok())
    return refuse(draft, "max_total_kv", "is absent, and the ", kv_slots.status().message(),
                  "; must be given");
  draft.problem.q_slots = *q_slots;
  draft.problem.kv_slots = *kv_slots;
  for (size_t i = 0; i < kNumRoles; ++i)
    if (draft.problem.operands[i].present)
      ATTNGRAPH_RETURN_IF_ERROR(check_footprint(draft, static_cast<Role>(i)));
  return {};
}

Status check_outputs(const Draft& draft) {
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    if (draft.has(role) && is_output(draft.problem, role))
      ATTNGRAPH_RETURN_IF_ERROR(check_output(draft, role));
  }
  return {};
}

}  // namespace attngraph
