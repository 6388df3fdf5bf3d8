"""Attention and its gradients as PyTorch operators on an installed attngraph: attngraph::forward,
attngraph::backward and attngraph::merge, on CPU and CUDA tensors, with autograd and torch.compile.

Tensors are views of any strides and are not copied. Dense q, k, v are [batch, heads, len, dim]; packed ones are
[tokens, heads, dim] with cu_seqlens, and their stats are [heads, tokens]. ATTNGRAPH_LIBRARY names the shared
library when the loader does not find it.
"""

from typing import Optional

import torch
from torch import Tensor

from attngraph_library import DTYPES, run


class Attention:
    """What a call says, as the operators pass it: tensors by role and attributes."""

    def __init__(self, q, k, v, bias, mask, seed, cu_q, cu_kv, numbers):
        self.scale, self.dropout_p, self.left, self.right, self.bottom_right, self.max_q, self.max_kv = numbers
        self.packed = cu_q is not None
        self.cu = {"q": cu_q, "kv": cu_kv}
        self.tensors = {"q": q, "k": k, "v": v}
        for role, tensor in (("bias", bias), ("mask", mask), ("dropout_seed", seed)):
            if tensor is not None:
                self.tensors[role] = tensor
        if self.packed:
            self.tensors["cu_seq_len_q"] = cu_q
            self.tensors["cu_seq_len_kv"] = cu_kv

    def outputs_of_forward(self):
        q, v = self.tensors["q"], self.tensors["v"]
        o = packed_like(q, (*q.shape[:-1], v.shape[-1]))
        shape = (q.shape[1], q.shape[0]) if self.packed else q.shape[:-1]
        return o, torch.full(shape, -torch.inf, dtype=torch.float32, device=q.device)

    def run(self, op, given, outputs):
        tensors = {**self.tensors, **given, **outputs}
        described = {role: (tensor, self.describe(role, tensor)) for role, tensor in tensors.items()}
        attributes = {"scale": self.scale, "dropout_p": self.dropout_p}
        band = {"align": "bottom_right" if self.bottom_right else "top_left"}
        if self.left >= 0:
            band["left"] = self.left
        if self.right >= 0:
            band["right"] = self.right
        attributes["band"] = tuple(band.items())
        if self.packed:
            attributes["max_total_q"] = self.tensors["q"].shape[0]
            attributes["max_total_kv"] = self.tensors["k"].shape[0]
        run(op, described, tuple(outputs), tuple(attributes.items()))

    def describe(self, role, tensor):
        """Type, dims, strides, alignment and raggedness in the order [batch, heads, len, dim]."""
        dims, strides, ragged = tuple(tensor.shape), tensor.stride(), None
        if self.packed and role in ("q", "k", "v", "o", "do", "stats", "dq", "dk", "dv"):
            side = "kv" if role in ("k", "v", "dk", "dv") else "q"
            batch, longest = self.cu[side].shape[0] - 1, self.max_kv if side == "kv" else self.max_q
            if role == "stats":  # [heads, tokens]
                (heads, _), (head, token) = dims, strides
                dims, strides = (batch, heads, longest, 1), (0, head, token, 1)
            else:
                (_, heads, dim), (token, head, element) = dims, strides
                dims, strides = (batch, heads, longest, dim), (0, head, token, element)
            if token != 0:  # else every row is the same one, as in the gradient of a sum
                ragged = ("cu_seq_len_" + side, token)
        return DTYPES[tensor.dtype], dims, strides, alignment_of(tensor), ragged


def alignment_of(tensor):
    return 16 if tensor.data_ptr() % 16 == 0 else tensor.element_size()


def packed_like(like, shape):
    """A tensor of this shape in the memory order of `like`, without gaps. The library writes all of it, but in
    packed tensors (of three dimensions) the tokens of no sequence: those are 0 already.
    """
    order = sorted(range(len(shape)), key=lambda axis: (like.stride(axis), -axis))
    strides, running = [0] * len(shape), 1
    for axis in order:
        strides[axis] = running
        running *= max(shape[axis], 1)
    made = torch.empty_strided(shape, strides, dtype=like.dtype, device=like.device)
    return made.zero_() if len(shape) == 3 else made


@torch.library.custom_op("attngraph::forward", mutates_args=())
def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Optional[Tensor],
    mask: Optional[Tensor],
    seed: Optional[Tensor],
    cu_q: Optional[Tensor],
    cu_kv: Optional[Tensor],
    scale: float,
    dropout_p: float,
    left: int,
    right: int,
    bottom_right: bool,
    max_q: int,
    max_kv: int,
) -> tuple[Tensor, Tensor]:
    numbers = (scale, dropout_p, left, right, bottom_right, max_q, max_kv)
    attention = Attention(q, k, v, bias, mask, seed, cu_q, cu_kv, numbers)
    o, stats = attention.outputs_of_forward()
    attention.run("sdpa_forward", {}, {"o": o, "stats": stats})
    return o, stats


@forward.register_fake
def _(q, k, v, bias, mask, seed, cu_q, cu_kv, *numbers):
    return Attention(q, k, v, bias, mask, seed, cu_q, cu_kv, numbers).outputs_of_forward()


def gradients(q, k, v, bias, wanted):
    """Memory for each gradient that is wanted; an empty tensor for the others."""
    primals = {"dq": q, "dk": k, "dv": v, "dbias": bias}
    return {
        role: packed_like(primal, primal.shape) if want else torch.empty(0, dtype=q.dtype, device=q.device)
        for (role, primal), want in zip(primals.items(), wanted)
    }


@torch.library.custom_op("attngraph::backward", mutates_args=())
def backward(
    do: Tensor,
    o: Tensor,
    stats: Tensor,
    wanted: list[bool],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Optional[Tensor],
    mask: Optional[Tensor],
    seed: Optional[Tensor],
    cu_q: Optional[Tensor],
    cu_kv: Optional[Tensor],
    scale: float,
    dropout_p: float,
    left: int,
    right: int,
    bottom_right: bool,
    max_q: int,
    max_kv: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    numbers = (scale, dropout_p, left, right, bottom_right, max_q, max_kv)
    attention = Attention(q, k, v, bias, mask, seed, cu_q, cu_kv, numbers)
    made = gradients(q, k, v, bias, wanted)
    outputs = {role: tensor for (role, tensor), want in zip(made.items(), wanted) if want}
    attention.run("sdpa_backward", {"o": o, "do": do, "stats": stats}, outputs)
    return tuple(made.values())


@backward.register_fake
def _(do, o, stats, wanted, q, k, v, bias, mask, seed, cu_q, cu_kv, *numbers):
    return tuple(gradients(q, k, v, bias, wanted).values())


def setup_context(ctx, inputs, output):
    *tensors, scale, dropout_p, left, right, bottom_right, max_q, max_kv = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.numbers = (scale, dropout_p, left, right, bottom_right, max_q, max_kv)
    ctx.mark_non_differentiable(output[1])


def differentiate(ctx, do, _):
    *tensors, o, stats = ctx.saved_tensors
    # Whichever wants a gradient: a bias alone is enough.
    wanted = [bool(needs) for needs in ctx.needs_input_grad[:4]]
    grads = backward(do, o, stats, wanted, *tensors, *ctx.numbers)
    rest = [None] * (len(tensors) - 4 + len(ctx.numbers))
    return *(grad if want else None for grad, want in zip(grads, wanted)), *rest


forward.register_autograd(differentiate, setup_context=setup_context)


@torch.library.custom_op("attngraph::merge", mutates_args=())
def merge(o_a: Tensor, stats_a: Tensor, o_b: Tensor, stats_b: Tensor) -> tuple[Tensor, Tensor]:
    """Dense attention to two disjoint sets of keys as attention to their union."""
    o, stats = packed_like(o_a, o_a.shape), torch.empty_like(stats_a)
    tensors = {"o_a": o_a, "stats_a": stats_a, "o_b": o_b, "stats_b": stats_b, "o": o, "stats": stats}
    described = {
        role: (t, (DTYPES[t.dtype], tuple(t.shape), t.stride(), alignment_of(t), None)) for role, t in tensors.items()
    }
    run("merge_partials", described, ("o", "stats"), ())
    return o, stats


@merge.register_fake
def _(o_a, stats_a, o_b, stats_b):
    return packed_like(o_a, o_a.shape), torch.empty_like(stats_a)


def attention(
    q, k, v, *, bias=None, mask=None, scale=None, causal=False, window=(-1, -1), bottom_right=False,
    dropout_p=0.0, seed=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=0, max_seqlen_k=0,
):
    """o and stats, the natural log-sum-exp of each row.

    `window` counts keys to the left and right of the diagonal, both inclusive, -1: unbounded. `mask` is bool,
    true where a key is attended to; `bias` is added to the scores; both broadcast, in four dimensions.
    """
    left, right = window[0], 0 if causal else window[1]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return forward(
        q, k, v, bias, mask, seed, cu_seqlens_q, cu_seqlens_k, scale, dropout_p, left, right, bottom_right,
        max_seqlen_q, max_seqlen_k,
    )
