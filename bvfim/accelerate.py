"""An upper step, faster: recorded once as a CUDA graph and replayed, its pieces compiled where that is asked for.

Numbers that vary over the steps are fed as scalar tensors, so that one recording serves all steps. What is replayed are
the operations of the plain step, in their order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.mapped import MappedAt
from bvfim.methods import BVFIM, CG, Estimator, Neumann
from bvfim.problem import At, Evaluations, Problem
from bvfim.status import BvfimWarning, MethodError
from bvfim.tree import Tree

WAYS = ("auto", "none", "cudagraph", "compile")
LAUNCH_BOUND = 20_000_000
"""Up to how many lower variables ``auto`` records a graph: above, the arithmetic takes far longer than its launches."""
INNER = (BVFIM, CG, Neumann)
"""The methods with inner steps to compile; the others differentiate through theirs."""
LONG = 5000
"""From how many upper steps on ``auto`` compiles: it takes tens of seconds."""

Found = tuple[Tree, Any, dict[str, Tensor]]
"""What an estimate gives back: a gradient, the next state, what to report."""


class CompiledAt(At):
    """The problem at one x, whose inner steps are compiled; their evaluations are counted elsewhere.

    The compiler follows the derivatives of torch.func, so that the gradients of the inner steps are those of
    :class:`MappedAt`; whatever is not compiled stays with autograd.
    """

    retained = False  # a compiled context gives its buffers away
    lower_grad = MappedAt._lower_grad
    weighted_grad = MappedAt._weighted_grad

    def inner(self, step: Callable[[Tree], Tree]) -> Callable[[Tree], Tree]:
        """The step, compiled as one graph."""
        return torch.compile(step, fullgraph=True, dynamic=False)


class _Compiled(Problem):
    def at(self, x: Tree, batch: Any = None) -> At:
        return CompiledAt(self, x, batch)


def compiled(problem: Problem) -> Problem:
    """The problem whose :class:`At` compiles inner steps, and whose context is compiled."""
    context = None if problem.context is None else torch.compile(problem.context, dynamic=False)
    found = _Compiled(problem.upper, problem.lower, problem.x_set, problem.y_set, context, problem.joint)
    # Looked up there for the first time, it would take a lock, which compilers can't follow.
    found.__dict__["_takes_data"] = problem._takes_data
    return found


def fed(method: Estimator, numbers: dict[str, Tensor]) -> Estimator:
    """The method with scalar tensors in the place of its schedules."""
    # Every method is a dataclass, which its protocol can't say.
    return replace(method, **numbers) if numbers else method  # type: ignore[type-var]


def scalars(method: Any, k: int, like: Tensor) -> dict[str, Tensor]:
    """The schedules of a method at step k, as scalar tensors; filled on the device, without a wait."""
    return {
        name: torch.full((), number, dtype=like.dtype, device=like.device) for name, number in method.numbers(k).items()
    }


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Let float32 products on a CUDA device round their inputs to TF32, or not, as long as it lasts."""
    switch = torch.backends.cuda.matmul
    before, switch.allow_tf32 = switch.allow_tf32, allowed
    try:
        yield
    finally:
        switch.allow_tf32 = before


@dataclass
class Plain:
    """The step as it is. On a device its schedules are fed as tensors there, as in a recorded step."""

    method: Any

    def __call__(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> Found:
        """One estimate."""
        first = tree.leaves(x)[0]
        method = self.method
        if first.is_cuda and isinstance(method, Estimator):
            method = fed(method, scalars(method, k, first))
        return method.estimate(problem, x, state, k, data)


def recorded(action: Callable[[], Any]) -> tuple[Any, Any]:
    """A CUDA graph of the action, and what it returned: tensors that every replay fills anew."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries and compilers set themselves up outside of the recording
        action()
        action()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = action()
    return graph, found


class Recording:
    """One step on inputs of given shapes, as a CUDA graph."""

    def __init__(self, method: Estimator, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> None:
        self.inputs = tree.map(lambda t: t.clone() if isinstance(t, Tensor) else t, (x, state, data))
        self.numbers = scalars(method, k, tree.leaves(x)[0])
        fixed = fed(method, self.numbers)

        x, state, data = self.inputs

        def step() -> Found:
            return fixed.estimate(problem, x, state, k, data)

        self.graph, self.found = recorded(step)

    def replay(self, x: Tree, state: Any, data: Any, numbers: dict[str, float]) -> Found:
        """The step on these inputs. The gradient is overwritten by the next replay; the state is a copy."""
        pairs = zip(tree.leaves(self.inputs), tree.leaves((x, state, data)), strict=True)
        tensors = [(own, new) for own, new in pairs if isinstance(own, Tensor)]
        torch._foreach_copy_([own for own, _ in tensors], [new for _, new in tensors])
        for name, number in numbers.items():
            self.numbers[name].fill_(number)
        self.graph.replay()
        gradient, after, info = self.found
        return gradient, tree.clone(after), info


@dataclass
class Accelerated:
    """A step that is recorded, compiled, or both; what fails of this is left out, with a line that says why."""

    method: Estimator
    compile: bool
    record: bool
    recordings: dict[Any, Recording] = field(default_factory=dict)
    each: Evaluations | None = None
    plain: Plain | None = None

    def __call__(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> Found:
        """One estimate, counted as the plain one is."""
        if self.plain is not None:
            return self.plain(problem, x, state, k, data)
        if self.each is None:  # the first step is plain, and tells what a step asks for
            before = problem.evaluations.as_dict()
            found = Plain(self.method)(problem, x, state, k, data)
            after = problem.evaluations.as_dict()
            self.each = Evaluations(**{kind: after[kind] - before[kind] for kind in after})
            return found
        try:
            found = self._step(problem, x, state, k, data)
        except Exception as error:
            self._give_up(error)
            return self(problem, x, state, k, data)
        for kind, count in self.each.as_dict().items():
            setattr(problem.evaluations, kind, getattr(problem.evaluations, kind) + count)
        return found

    def _step(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> Found:
        shape = _signature(data)
        if shape not in self.recordings:
            own = compiled(problem) if self.compile else problem.counted_anew()
            if not self.record:
                return fed(self.method, scalars(self.method, k, tree.leaves(x)[0])).estimate(own, x, state, k, data)
            self.recordings[shape] = Recording(self.method, own, x, state, k, data)
        return self.recordings[shape].replay(x, state, data, self.method.numbers(k))

    def _give_up(self, error: Exception) -> None:
        self.recordings.clear()
        what = "compiled" if self.compile else "recorded as a CUDA graph"
        then = "is recorded as it is" if self.compile and self.record else "runs plainly"
        if not (self.compile and self.record):
            self.plain = Plain(self.method)
        self.compile = False
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        warnings.warn(f"the step could not be {what} and {then}: {reason}", BvfimWarning, stacklevel=2)


def _signature(data: Any) -> Any:
    """What must be the same for a recording to serve other data: shapes and types, and what is no tensor."""
    return tuple((t.shape, t.dtype) if isinstance(t, Tensor) else t for t in tree.leaves(data))


def stepper(accelerate: str, problem: Problem, method: Any, x: Tree, y: Tree, steps: int) -> Any:
    """What takes the estimates of a run.

    Args:
        accelerate: one of :data:`WAYS`.
        problem: the problem; method: the method.
        x, y: the start.
        steps: how many upper steps are asked for.
    """
    if accelerate not in WAYS:
        raise MethodError(f"accelerate must be one of {', '.join(WAYS)}, not {accelerate!r}")
    cuda = tree.leaves(x)[0].is_cuda
    compilable = isinstance(method, INNER) or problem.context is not None
    why = _unfit(method, cuda, accelerate, compilable)
    if accelerate == "auto":
        fits = why is None and cuda and steps >= 10 and tree.size(y) <= LAUNCH_BOUND
        return Accelerated(method, compile=compilable and steps >= LONG, record=True) if fits else Plain(method)
    if accelerate == "none":
        return Plain(method)
    if why is not None:
        warnings.warn(f"accelerate={accelerate!r}: {why}; the step runs plainly", BvfimWarning, stacklevel=3)
        return Plain(method)
    return Accelerated(method, compile=compilable and accelerate == "compile", record=cuda)


def _unfit(method: Any, cuda: bool, accelerate: str, compilable: bool) -> str | None:
    if not getattr(method, "capturable", False):
        return f"{type(method).__name__} is not known to be the same at every step"
    if not cuda and (accelerate == "cudagraph" or not compilable):
        return "x is not on a CUDA device"
    return None
