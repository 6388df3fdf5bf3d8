#!/usr/bin/env python3
"""Times PyTorch's attention on the problems of `attngraph bench`, in turn with it.

Each round runs `attngraph bench --filter ... --json` and then PyTorch's
scaled_dot_product_attention on the problems that the figures name, with as many threads, or for
an engine other than cpu on the GPU. Printed are the medians over the rounds in GFLOP/s and the
median ratio of both of one round: above 1, attngraph is faster.

examples: python3 test/peers/pytorch_attention.py build/release/src/cli/attngraph --threads 2
          python3 test/peers/pytorch_attention.py build/release/src/cli/attngraph --engine cuda --filter gpu/
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def run_attngraph(options):
    """The report of one round: a warm-up and one sample of each row."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        command = [options.program, "bench", "--filter", options.filter, "--rounds", "1",
                   "--threads", str(options.threads), "--engine", options.engine, "--json", path]
        if options.isa:
            command += ["--isa", options.isa]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def dense_figures(report):
    """Figures that PyTorch is asked for: equal lengths, no window, plain scores, counted in operations."""
    others = ("packed", "window", "softcap", "mask", "bias", "dropout_p")
    return [figure for figure in report["figures"]
            if figure["unit"] == "GFLOP/s" and "problem" in figure
            and not any(figure["problem"][name] for name in others)]


def flops(problem):
    """Of kept elements: two products forward, five backward, each 2 * dim or v_dim operations an element."""
    q_len, kv_len = problem["q_len"], problem["kv_len"]
    kept = sum(min(row + 1, kv_len) for row in range(q_len)) if problem["causal"] else q_len * kv_len
    dim, v_dim = problem["dim"], problem["v_dim"]
    columns = dim + v_dim if problem["pass"] == "forward" else 3 * dim + 2 * v_dim
    return 2 * columns * kept * problem["batch"] * problem["q_heads"]


class Peer:
    """One problem in PyTorch, with its data."""

    BACK_TO_BACK = 5  # launches a sample on a GPU, as attngraph bench has it

    def __init__(self, problem, on_gpu):
        self.problem = problem
        self.on_gpu = on_gpu
        self.is_backward = problem["pass"] == "backward"
        batch, dim = problem["batch"], problem["dim"]
        self.q = self.tensor(batch, problem["q_heads"], problem["q_len"], dim)
        self.k = self.tensor(batch, problem["kv_heads"], problem["kv_len"], dim)
        self.v = self.tensor(batch, problem["kv_heads"], problem["kv_len"], problem["v_dim"])
        if self.is_backward:
            self.o = self.forward()
            self.grad = torch.randn_like(self.o)

    def tensor(self, batch, heads, length, dim):
        """Heads first in memory, on a GPU tokens first: as in the rows of attngraph bench."""
        dtype = DTYPES[self.problem["dtype"]]
        if not self.on_gpu:
            return torch.randn(batch, heads, length, dim, dtype=dtype, requires_grad=self.is_backward)
        tokens_first = torch.randn(batch, length, heads, dim, dtype=dtype, device="cuda")
        return tokens_first.transpose(1, 2).requires_grad_(self.is_backward)

    def forward(self):
        grouped = {"enable_gqa": True} if self.problem["q_heads"] != self.problem["kv_heads"] else {}
        return scaled_dot_product_attention(self.q, self.k, self.v, is_causal=self.problem["causal"], **grouped)

    def run(self):
        if self.is_backward:
            torch.autograd.grad(self.o, (self.q, self.k, self.v), self.grad, retain_graph=True)
        else:
            with torch.no_grad():
                self.forward()

    def seconds(self):
        """Of one call."""
        if not self.on_gpu:
            begin = time.perf_counter()
            self.run()
            return time.perf_counter() - begin
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(self.BACK_TO_BACK):
            self.run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / self.BACK_TO_BACK

    def gflops(self):
        """One sample after a call that does not count."""
        self.run()
        return flops(self.problem) / self.seconds() / 1e9


def compare(options):
    """Names in order, and by name the figures of both sides round by round."""
    peers, rows, machine = {}, {}, None
    for round_number in range(options.rounds):
        report = run_attngraph(options)
        machine = report["machine"]
        for figure in dense_figures(report):
            name = figure["name"]
            if name not in peers:
                peers[name] = Peer(figure["problem"], options.engine != "cpu")
                rows[name] = {"attngraph": [], "pytorch": []}
            rows[name]["attngraph"].append(figure["median"])
            rows[name]["pytorch"].append(peers[name].gflops())
        if sys.stderr.isatty():
            print(f"\rround {round_number + 1} of {options.rounds}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return machine, rows


def summarise(rows):
    table = []
    for name, both in rows.items():
        ratios = [own / other for own, other in zip(both["attngraph"], both["pytorch"])]
        table.append({"name": name, "attngraph": statistics.median(both["attngraph"]),
                      "pytorch": statistics.median(both["pytorch"]), "ratio": statistics.median(ratios),
                      "lowest_ratio": min(ratios), "highest_ratio": max(ratios)})
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program attngraph")
    parser.add_argument("--filter", default="cpu/", help="rows of attngraph bench (default cpu/)")
    parser.add_argument("--engine", default="cpu", help="engine of attngraph (default cpu)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of both (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--isa", help="instruction set of attngraph (default: the machine's best)")
    parser.add_argument("--json", help="write the table to this file, too")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    machine, rows = compare(options)
    if not rows:
        parser.error(f"--filter: is {options.filter} and names no dense attention row in GFLOP/s")
    table = summarise(rows)

    print(f"{machine.get('device', machine['cpu'])}, {options.threads} threads, engine {options.engine}, "
          f"{machine['isa']}, PyTorch {torch.__version__}, {options.rounds} rounds, GFLOP/s")
    width = max(len(row["name"]) for row in table)
    print(f"{'what':{width}} {'attngraph':>10} {'pytorch':>10} {'ratio':>7} {'lowest':>7} {'highest':>8}")
    for row in table:
        print(f"{row['name']:{width}} {row['attngraph']:10.1f} {row['pytorch']:10.1f} {row['ratio']:7.2f} "
              f"{row['lowest_ratio']:7.2f} {row['highest_ratio']:8.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "threads": options.threads, "rounds": options.rounds,
                       "pytorch": torch.__version__, "rows": table}, file, indent=1)


if __name__ == "__main__":
    main()
