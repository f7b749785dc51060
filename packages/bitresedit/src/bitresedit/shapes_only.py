"""Modules that are built for weights that are read afterwards: names and shapes, no memory and no random numbers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class _Unset(TorchFunctionMode):
    """Skip arithmetic on meta tensors, which has no values to give and costs seconds of imports."""

    _ARITHMETIC = frozenset({"normal_", "uniform_", "zero_", "add_", "mul_", "mul", "div"})

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("tensor")
        skipped = (
            getattr(func, "__module__", "") == "torch.nn.init" or getattr(func, "__name__", "") in self._ARITHMETIC
        )
        if skipped and isinstance(first, Tensor) and first.is_meta:
            return first
        return (torch.empty if func is torch.randn else func)(*args, **kwargs)


@contextmanager
def shapes_only() -> Generator[None]:
    """Build modules on the meta device, for ``load_state_dict(..., assign=True)``.

    Neither time nor memory goes into weights that are replaced at once, and torch's global generator stays as it was.
    """
    with torch.device("meta"), _Unset():
        yield
