"""The accidents of other attention operators, on this one: `python test_attngraph_torch.py [-v]`.

With ATTNGRAPH_ENGINE=cuda in the environment, which leaves that engine alone, CUDA tensors alone are tested.
"""

import functools
import math
import os
import shutil
import unittest

try:
    import torch
except ImportError:
    print("skipped: there is no PyTorch")
    raise SystemExit(0)
if not hasattr(torch.library, "custom_op"):
    print("skipped: PyTorch is", torch.__version__, "and needs torch.library.custom_op of 2.4")
    raise SystemExit(0)

from attngraph_torch import attention, backward, forward, merge

DEVICES = [] if os.environ.get("ATTNGRAPH_ENGINE") == "cuda" else ["cpu"]
if torch.cuda.is_available():
    DEVICES.append("cuda")
TYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCES = {torch.float32: 1e-4, torch.float16: 8e-3, torch.bfloat16: 4e-2}  # docs/numerics.md, section 8


def on_every_device(test):
    @functools.wraps(test)
    def run(self):
        for device in DEVICES:
            with self.subTest(device=device):
                torch.manual_seed(1)
                test(self, device)

    return run


def math_attention(q, k, v, bias=None, mask=None, causal=False):
    """In float32, by the definition; rows that see nothing give 0."""
    q, k, v = q.float(), k.float(), v.float()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias.float()
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
    if causal:
        keep = keep.tril()
    if mask is not None:
        keep = keep & mask
    scores = scores.masked_fill(~keep, -torch.inf)
    p = torch.softmax(scores, -1).masked_fill(~keep, 0)
    return p.nan_to_num(0) @ v


def math_step(inputs, do, **options):
    """o and the gradients of q, k and v, in float32."""
    leaves = [x.detach().float().requires_grad_() for x in inputs]
    o = math_attention(*leaves, **options)
    return o, torch.autograd.grad(o, leaves, do.float())


def random(*shape, dtype=torch.float32, device="cpu"):
    return torch.randn(*shape, dtype=torch.float32, device=device).to(dtype)


class Case(unittest.TestCase):
    def close(self, got, want, what=""):
        tolerance = TOLERANCES[got.dtype]
        # A gradient that is zero in exact arithmetic has no magnitude.
        largest = max(want.abs().max().item(), 0.1) if want.numel() else 0
        torch.testing.assert_close(
            got.float(), want.float(), atol=tolerance * largest, rtol=tolerance, msg=lambda m: what + m
        )

    def same_step(self, inputs, views, **options):
        """o and every gradient against the definition. `views` makes q, k, v, and bias from the leaves."""
        leaves = [x.clone().requires_grad_() for x in inputs]
        q, k, v, *bias = views(*leaves)
        o, stats = attention(q, k, v, bias=bias[0] if bias else None, **options)
        do = random(*o.shape, dtype=o.dtype, device=o.device)
        grads = torch.autograd.grad(o, leaves, do)
        reference = [x.detach().float().requires_grad_() for x in inputs]
        q, k, v, *bias = views(*reference)
        want = math_attention(q, k, v, bias=bias[0] if bias else None, **options)
        want_grads = torch.autograd.grad(want, reference, do.float())
        self.close(o, want, "o: ")
        for i, (grad, want_grad) in enumerate(zip(grads, want_grads)):
            self.assertTrue(torch.isfinite(grad).all())
            self.close(grad, want_grad, f"gradient {i}: ")
        return o, stats


class Dense(Case):
    @on_every_device
    def test_heads_and_length_may_be_equal(self, device):  # where a mix-up of layouts hides
        for shape in [(2, 16, 16, 64), (2, 24, 1024, 64)]:
            for dtype in TYPES:
                qkv = [random(*shape, dtype=dtype, device=device) for _ in range(3)]
                self.same_step(qkv, lambda q, k, v: (q, k, v), causal=True)

    @on_every_device
    def test_batch_len_heads_is_a_view(self, device):
        for dtype in TYPES:
            leaves = [random(2, 33, h, 16, dtype=dtype, device=device) for h in (6, 2, 2)]
            o, _ = self.same_step(leaves, lambda q, k, v: [x.transpose(1, 2) for x in (q, k, v)])
            self.assertEqual(o.stride(), (33 * 96, 16, 96, 1))  # o lies as q does

    @on_every_device
    def test_q_k_and_v_may_be_interleaved(self, device):
        split = lambda qkv: [x.transpose(1, 2) for x in qkv.unbind(2)]
        for dtype in TYPES:
            self.same_step([random(2, 21, 3, 4, 16, dtype=dtype, device=device)], split, causal=True)

    @on_every_device
    def test_a_bias_alone_may_want_a_gradient(self, device):
        for dtype in TYPES:
            q, k, v = (random(2, 4, 9, 8, dtype=dtype, device=device) for _ in range(3))
            bias = random(1, 4, 1, 9, dtype=dtype, device=device)
            self.same_step([bias], lambda b: (q.to(b.dtype), k.to(b.dtype), v.to(b.dtype), b))

    @on_every_device
    def test_rows_that_see_nothing_are_0(self, device):
        mask = torch.rand(2, 1, 9, 7, device=device) < 0.5
        mask[:, :, 4] = False
        qkv = [random(2, 4, n, 8, device=device) for n in (9, 7, 7)]
        o, stats = self.same_step(qkv, lambda q, k, v: (q, k, v), mask=mask)
        self.assertTrue((o[:, :, 4] == 0).all() and (stats[:, :, 4] == -torch.inf).all())

    @on_every_device
    def test_dropout_is_redrawn_by_its_seed(self, device):
        q, k, v = (random(1, 2, 40, 8, device=device).requires_grad_() for _ in range(3))
        draw = lambda s: attention(q, k, v, dropout_p=0.5, seed=torch.tensor([s], device=device))[0]
        self.assertTrue(torch.equal(draw(7), draw(7)))
        self.assertFalse(torch.equal(draw(7), draw(8)))
        # o is linear in v: the gradient of its sum is the same mask's.
        o = draw(7)
        (dv,) = torch.autograd.grad(o.sum(), v)
        self.close((dv * v).sum().reshape(1), o.sum().reshape(1))

    @on_every_device
    def test_empty_tensors_are_no_special_case(self, device):
        for shapes in [((0, 2, 5, 8),) * 3, ((2, 2, 0, 8), (2, 2, 5, 8), (2, 2, 5, 8))]:
            q, k, v = (random(*shape, device=device).requires_grad_() for shape in shapes)
            grads = torch.autograd.grad(attention(q, k, v)[0].sum(), (q, k, v))
            self.assertTrue(all((grad == 0).all() for grad in grads))

    def test_indices_beyond_31_bits(self):
        if "cuda" not in DEVICES:
            self.skipTest("400 x 4 x 10496 x 128 needs a CUDA device")
        options = {"dtype": torch.bfloat16, "device": "cuda"}
        q, do = (torch.randn(400, 4, 10496, 128, **options) for _ in range(2))
        leaves = [q, *(torch.randn(400, 4, 128, 128, **options) for _ in range(2))]
        for leaf in leaves:
            leaf.requires_grad_()
        o, stats = attention(*leaves)
        grads = torch.autograd.grad(o, leaves, do)
        for b in (0, 199, 399):  # the last element has index 2,149,580,799
            part = slice(b, b + 1)
            want, want_grads = math_step([leaf[part] for leaf in leaves], do[part])
            self.close(o[part], want, f"o of {b}: ")
            for name, grad, want_grad in zip(("dq", "dk", "dv"), grads, want_grads):
                self.close(grad[part], want_grad, f"{name} of {b}: ")

    @on_every_device
    def test_what_is_refused_says_why(self, device):
        with self.assertRaisesRegex(RuntimeError, "heads is 3; must be a multiple of 2"):
            attention(*(random(1, h, 4, 8, device=device) for h in (3, 2, 2)))


class Packed(Case):
    @on_every_device
    def test_each_sequence_is_as_alone(self, device):
        lengths = [5, 0, 12, 1]
        cu = torch.tensor([0, 5, 5, 17, 18], dtype=torch.int32, device=device)
        options = {"causal": True, "cu_seqlens_q": cu, "cu_seqlens_k": cu, "max_seqlen_q": 12, "max_seqlen_k": 12}
        for dtype in TYPES:
            leaves = [random(18, h, 16, dtype=dtype, device=device).requires_grad_() for h in (4, 2, 2)]
            o, stats = attention(*leaves, **options)
            do = random(*o.shape, dtype=dtype, device=device)
            grads = torch.autograd.grad(o, leaves, do)
            self.assertEqual(tuple(stats.shape), (4, 18))  # head by head, as PyTorch's varlen has them
            for begin, length in zip(cu.tolist(), lengths):
                part = slice(begin, begin + length)
                alone = [x[part].transpose(0, 1)[None] for x in (*leaves, do)]
                want, want_grads = math_step(alone[:3], alone[3], causal=True)
                self.close(o[part].transpose(0, 1), want[0])
                for grad, want_grad in zip(grads, want_grads):
                    self.close(grad[part].transpose(0, 1), want_grad[0])

    @on_every_device
    def test_tokens_of_no_sequence_are_0(self, device):
        cu = torch.tensor([2, 6, 9], dtype=torch.int64, device=device)
        q = random(12, 2, 8, device=device).requires_grad_()
        o, stats = attention(q, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=4, max_seqlen_k=4)
        (dq,) = torch.autograd.grad(o.sum(), q)
        for outside in (slice(0, 2), slice(9, 12)):
            self.assertTrue((o[outside] == 0).all() and (dq[outside] == 0).all())
            self.assertTrue((stats[:, outside] == -torch.inf).all())


class ContextParallel(Case):
    @on_every_device
    def test_halves_of_the_keys_merge_and_their_backwards_add_up(self, device):
        q, k, v = (random(2, h, n, 16, device=device) for h, n in ((4, 11), (2, 30), (2, 30)))
        halves = [(k[:, :, :13], v[:, :, :13]), (k[:, :, 13:], v[:, :, 13:])]
        (o_a, stats_a), (o_b, stats_b) = (attention(q, *half) for half in halves)
        o, stats = merge(o_a, stats_a, o_b, stats_b)
        do = random(*o.shape, device=device)
        want, (dq, dk, dv) = math_step((q, k, v), do)
        self.close(o, want)
        numbers = (16**-0.5, 0.0, -1, -1, False, 0, 0)
        parts = [
            backward(do, o, stats, [True, True, True, False], q, *half, None, None, None, None, None, *numbers)
            for half in halves
        ]
        self.close(parts[0][0] + parts[1][0], dq)
        self.close(torch.cat([part[1] for part in parts], 2), dk)
        self.close(torch.cat([part[2] for part in parts], 2), dv)


class Operators(Case):
    def sample(self, device, needs_grad):
        q, k, v = (random(2, h, 9, 8, device=device).requires_grad_(needs_grad) for h in (4, 2, 2))
        bias = random(1, 4, 9, 9, device=device).requires_grad_(needs_grad)
        return q, k, v, bias, None, None, None, None, math.sqrt(1 / 8), 0.0, -1, 0, False, 0, 0

    @on_every_device
    def test_opcheck_finds_nothing(self, device):
        torch.library.opcheck(forward, self.sample(device, True))
        q, k, v, *rest = self.sample(device, False)
        o, stats = forward(q, k, v, *rest)
        torch.library.opcheck(backward, (o, o, stats, [True, False, True, True], q, k, v, *rest))
        torch.library.opcheck(merge, (o, stats, o.clone(), stats.clone()))

    @on_every_device
    def test_torch_compile_gives_the_same(self, device):
        def step(q, k, v):
            return attention(q * 2, k, v, causal=True)[0].square().sum()

        # Inductor calls a C++ compiler; for the CPU it takes a minute to.
        backends = ["aot_eager"] + (["inductor"] if device == "cuda" and shutil.which("g++") else [])
        for backend in backends:
            leaves = [random(1, 2, 16, 8, device=device).requires_grad_() for _ in range(3)]
            got = torch.autograd.grad(torch.compile(step, fullgraph=True, backend=backend)(*leaves), leaves)
            for grad, want in zip(got, torch.autograd.grad(step(*leaves), leaves)):
                self.close(grad, want, backend + ": ")
        print("torch.compile on", device, "with", " and ".join(backends))

    def test_a_captured_step_replays_with_other_inputs(self):
        if "cuda" not in DEVICES:
            self.skipTest("a CUDA graph needs a CUDA device")
        for dtype in TYPES:
            leaves = [random(2, h, 40, 64, dtype=dtype, device="cuda").requires_grad_() for h in (4, 2, 2)]
            do = random(2, 4, 40, 64, dtype=dtype, device="cuda")

            def step():
                o, _ = attention(*leaves, causal=True)
                return o, torch.autograd.grad(o, leaves, do)

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # plans; autograd wants to have run outside of a capture
                step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                o, grads = step()
            for _ in range(2):
                with torch.no_grad():
                    for tensor in (*leaves, do):
                        tensor.normal_()
                graph.replay()
                want, want_grads = math_step(leaves, do, causal=True)
                self.close(o, want)
                for grad, want_grad in zip(grads, want_grads):
                    self.close(grad, want_grad)


if __name__ == "__main__":
    unittest.main()
