"""The C interface of an installed attngraph, as far as a PyTorch operator needs it.

Graphs go in as JSON, so of the header's structs only those of a call are written down here; the library reads
no further than the size that each of them tells.
"""

import contextlib
import ctypes
import functools
import json
import os
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_void_p

import torch

NONE = -(2**63)  # ATTNGRAPH_NONE
ALIGNMENT = 256  # bytes, of workspaces
DTYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}


class Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("capacity", c_size_t), ("length", c_size_t)]


class Target(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("memory", c_int32),
        ("isa", c_int32),
        ("num_threads", c_int32),
        ("sm_version", c_int32),
        ("sm_count", c_int32),
        ("cudnn_version", c_int32),
        ("shared_memory_bytes", c_int64),
        ("l2_bytes", c_int64),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pointers", POINTER(c_void_p)),
        ("bytes", POINTER(c_int64)),
        ("num_pointers", c_int32),
        ("workspace", c_void_p),
        ("workspace_bytes", c_int64),
        ("stream", c_void_p),
    ]


class Library:
    """The loaded library and its one context."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.attngraph_plan_slot.argtypes = [c_void_p, c_int64]
        self.c.attngraph_plan_workspace_bytes.argtypes = [c_void_p]
        self.c.attngraph_plan_workspace_bytes.restype = c_int64
        self.c.attngraph_plan_num_slots.argtypes = [c_void_p]
        self.c.attngraph_execute.argtypes = [c_void_p, POINTER(Call), POINTER(Text)]
        self.c.attngraph_plan_destroy.argtypes = [c_void_p]
        self.c.attngraph_graph_destroy.argtypes = [c_void_p]
        self.c.attngraph_context_target.argtypes = [c_void_p, c_char_p, POINTER(Target), POINTER(Text)]
        self.context = c_void_p()
        self.check(self.c.attngraph_context_create, None, byref(self.context))

    def target(self, device):
        """Of the current CUDA device, whose engines are those of the engine "cuda", or of the host."""
        target = Target(ctypes.sizeof(Target))
        engine = b"cuda" if device.type == "cuda" else None
        self.check(self.c.attngraph_context_target, self.context, engine, byref(target))
        return target

    def check(self, function, *arguments):
        """Calls the function with a message at the end; raises RuntimeError with its text."""
        buffer = ctypes.create_string_buffer(4096)
        message = Text(ctypes.cast(buffer, c_void_p), len(buffer), 0)
        if function(*arguments, byref(message)) != 0:
            raise RuntimeError("attngraph: " + buffer.value.decode())


@functools.lru_cache(maxsize=None)
def library():
    return Library(os.environ.get("ATTNGRAPH_LIBRARY", "libattngraph.so"))


class Plan:
    """A planned graph of one node; shared by threads."""

    def __init__(self, graph, device):
        lib = library()
        text = json.dumps(graph).encode()
        handle, self.handle = c_void_p(), c_void_p()
        lib.check(lib.c.attngraph_graph_from_json, text, c_size_t(len(text)), byref(handle))
        try:  # for the first engine of the device that takes the graph
            target = lib.target(device)
            lib.check(
                lib.c.attngraph_plan_create, lib.context, handle, byref(target), None, byref(self.handle)
            )
        finally:
            lib.c.attngraph_graph_destroy(handle)
        self.workspace_bytes = lib.c.attngraph_plan_workspace_bytes(self.handle)
        self.num_slots = lib.c.attngraph_plan_num_slots(self.handle)
        node = graph["nodes"][0]
        self.slots = {
            role: lib.c.attngraph_plan_slot(self.handle, uid)
            for role, uid in {**node["inputs"], **node["outputs"]}.items()
        }

    def __del__(self):
        if self.handle:
            library().c.attngraph_plan_destroy(self.handle)

    def run(self, tensors):
        """Runs on the tensors by role, on the current stream of their device, which must be the current one."""
        device = next(iter(tensors.values())).device
        pointers = (c_void_p * self.num_slots)()
        sizes = (c_int64 * self.num_slots)(*[-1] * self.num_slots)
        for role, tensor in tensors.items():
            pointers[self.slots[role]] = tensor.data_ptr()
        # Memory of PyTorch's own allocator, which knows the stream.
        workspace = torch.empty(self.workspace_bytes + ALIGNMENT, dtype=torch.uint8, device=device)
        address = -(-workspace.data_ptr() // ALIGNMENT) * ALIGNMENT
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
        call = Call(
            ctypes.sizeof(Call), pointers, sizes, self.num_slots, address, self.workspace_bytes, stream
        )
        lib = library()
        lib.check(lib.c.attngraph_execute, self.handle, byref(call))


def current(device):
    """Makes the device the current one where it is a CUDA device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@functools.lru_cache(maxsize=256)
def plan(op, tensors, outputs, attributes, device):
    """The plan of a node for a device, from descriptions that are its identity: (role, tensor description) each.

    Offsets of packed tensors are the cu lengths of their side, which are tensors of the node, too.
    """
    uids = {role: i + 1 for i, (role, _) in enumerate(tensors)}
    described = []
    for role, (dtype, dims, strides, alignment, ragged) in tensors:
        tensor = {"uid": uids[role], "name": role, "dtype": dtype, "dims": dims, "strides": strides}
        if ragged:
            tensor["ragged"] = {"offsets": uids[ragged[0]], "multiplier": ragged[1]}
        described.append({**tensor, "alignment": alignment})
    node = {
        "op": op,
        "inputs": {role: uid for role, uid in uids.items() if role not in outputs},
        "outputs": {role: uids[role] for role in outputs},
        "attributes": {
            key: dict(value) if isinstance(value, tuple) else value for key, value in attributes
        },
    }
    graph = {"format": "attngraph.graph", "version": 1, "tensors": described, "nodes": [node]}
    return Plan(graph, device)


def run(op, tensors, outputs, attributes):
    """Plans a node, unless that was done before, and runs it: tensors and their descriptions by role."""
    device = next(iter(tensors.values()))[0].device
    described = tuple((role, description) for role, (_, description) in tensors.items())
    with current(device):
        made = plan(op, described, outputs, attributes, device)
        made.run({role: tensor for role, (tensor, _) in tensors.items()})
