"""GPUs that are not there, and compute: a tensor that says `cuda:0` holds one on the processor.

An operation is done by the tensors inside, and refused where CUDA would refuse it: where it mixes
devices, draws on a GPU from a generator of the processor, or looks at a GPU's memory from here. So
code that runs, and gives what it gives on the processor, has moved all that it had to move.

To torch's C++ such a tensor is on `meta`, as those of torch's own FakeTensorMode are: a build for
processors alone has no guard for CUDA and no thread to bring a gradient back there. So `meta`
means, inside of `FakeGPUs`, the GPU that computed last; nothing here is really on `meta`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

ATEN = torch.ops.aten
TRANSFERS = {ATEN._to_copy.default, ATEN.copy_.default}
"""What brings numbers from one device to another."""
INDEXING = {ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default}
"""What takes its indices, which are its second argument, from the processor too."""
SCALARS = {ATEN.masked_fill.Tensor, ATEN.masked_fill_.Tensor, ATEN.fill_.Tensor}
"""What takes one number from the processor, besides all that goes number by number."""
CPU = torch.device("cpu")


class GPUTensor(torch.Tensor):
    """A tensor on a GPU that is not there."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner, device):
        """Wrap a tensor of the processor; their memory is the same."""
        found = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="meta",
        )
        found.inner, found.place = inner, device
        return found

    @property
    def device(self):
        """Where it says that it is."""
        return self.place

    @property
    def is_cuda(self):
        """What CUDA's own say."""
        return True

    def __repr__(self):
        return f"GPUTensor({self.inner}, {self.place})"

    def to(self, *args, **kwargs):
        """Itself where nothing changes, as everywhere; C++ cannot see that nothing does."""
        parsed = torch._C._nn._parse_to(*[a for a in args if a is not True], **_plain(kwargs))
        device, dtype = parsed[0], parsed[1]
        same = device is None or _placed(device) == self.place
        if same and dtype in (None, self.dtype) and not kwargs.get("copy"):
            return self
        return super().to(*args, **kwargs)

    def data_ptr(self):
        """Refuse: what goes by addresses would look at this machine's memory."""
        raise RuntimeError(f"the memory of {self.place} was to be looked at from the processor")

    def tolist(self):
        """Fetch the numbers."""
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Compute where no mode is, such as below a gradient's own thread."""
        return compute(func, args, kwargs or {})


class FakeGPUs(TorchDispatchMode):
    """Inside the `with` there are GPUs, and tensors can be made on them and brought there.

    What is computed on the processor meanwhile is counted in `on_cpu`, by the operation's name;
    views and transfers are not.
    """

    def __init__(self):
        super().__init__()
        self.on_cpu, self.on_gpu = Counter(), Counter()
        self._before = []

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else the compiler is loaded, which takes seconds, to be told not to compile

    def __enter__(self):
        # `torch.tensor(..., device="cuda")` then makes one here and moves it, which can be seen.
        self._before.append(torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(self._before.pop())
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with self:  # in inference mode what is made of other operations comes here as a whole
            parts = func.decompose(*args, **(kwargs or {}))
        if parts is not NotImplemented:
            return parts
        found = compute(func, args, kwargs or {})
        if func not in TRANSFERS and not func.is_view:
            held = [t for t in tree_leaves((args, kwargs, found)) if isinstance(t, torch.Tensor)]
            gpu = any(isinstance(t, GPUTensor) for t in held)
            (self.on_gpu if gpu else self.on_cpu)[func._schema.name.removeprefix("aten::")] += 1
        return found


@contextmanager
def fake_gpus(count=1):
    """Let there be so many GPUs for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda._lazy_init", lambda: None)
        patch.setattr("torch.cuda.device_count", lambda: count)
        with FakeGPUs() as found:
            yield found


def compute(func, args, kwargs):
    """Do an operation where its arguments are, or refuse it as CUDA would."""
    held = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    asked = kwargs.get("device")
    device = _device_of(func, held, asked)
    if device == CPU and not any(isinstance(t, GPUTensor) for t in held):
        return func(*args, **kwargs)
    _check(func, args, kwargs, held, device)
    own = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if asked is not None:
        own["device"] = CPU
    args_in, own = tree_map_only(GPUTensor, lambda t: t.inner, (args, own))
    with torch.inference_mode(False):
        found = func(*args_in, **own)
    returns = func._schema.returns
    if returns and all(r.alias_info is not None and r.alias_info.is_write for r in returns):
        written = _written(func, args, kwargs)
        return written[0] if len(returns) == 1 else tuple(written)
    if device == CPU:
        return found
    _last[0] = device
    # In inference mode all that is made counts no versions, but for a view of what counts them.
    counts = func.is_view and not held[0].is_inference()
    with torch.inference_mode(torch.is_inference_mode_enabled() and not counts):
        return tree_map_only(torch.Tensor, lambda t: GPUTensor(t, device), found)


_last = [torch.device("cuda:0")]


def _placed(device):
    """A device by its full name; `meta`: the GPU that computed last."""
    device = torch.device(device)
    if device.type == "meta":
        return _last[0]
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def _device_of(func, held, asked):
    """Where the result of an operation is."""
    if asked is not None:
        return _placed(asked)
    if func is ATEN.copy_.default:
        return held[0].device
    return next((t.device for t in held if isinstance(t, GPUTensor)), CPU)


def _check(func, args, kwargs, held, device):
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != device.type:
        raise RuntimeError(f"{func} on {device} draws from a generator on {generator.device}")
    if func in TRANSFERS:
        return
    written = {id(t) for t in _written(func, args, kwargs)}
    indices = {id(t) for t in tree_leaves(args[1])} if func in INDEXING else set()
    scalars = torch.Tag.pointwise in func.tags or func in SCALARS or func in INDEXING
    for tensor in held:
        if tensor.device == device or id(tensor) in indices:
            continue
        alone = tensor.dim() == 0 and tensor.device == CPU and id(tensor) not in written
        if not (alone and scalars):
            raise RuntimeError(
                f"expected all tensors to be on the same device, and {func} was given "
                f"{[*tensor.shape]} on {tensor.device} beside one on {device}"
            )


def _written(func, args, kwargs):
    """The arguments that an operation changes."""
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            found += [t for t in tree_leaves(given) if isinstance(t, torch.Tensor)]
    return found


def _plain(kwargs):
    return {name: value for name, value in kwargs.items() if name not in ("copy",)}
