"""Faster upper steps: recorded once as a CUDA graph and replayed, with parts compiled on request.

Numbers that vary over the steps are passed as scalar tensors, so that one recording serves all steps. A replay runs the
operations of the plain step, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.backends import Functional
from bvfim.core.evaluations import Evaluations
from bvfim.core.problem import Problem
from bvfim.methods.base import Info
from bvfim.status import MethodError, warn
from bvfim.tree import Tree

WAYS = ("auto", "none", "cudagraph", "compile")
LAUNCH_BOUND = 20_000_000
"""``auto`` records a graph up to this many lower variables: above it, arithmetic takes far longer than launches."""
WORTH_RECORDING = 10
"""``auto`` records from this many upper steps on: a recording takes as long as three steps."""
LONG = 5000
"""``auto`` compiles from this many upper steps on: compiling takes tens of seconds."""

Found = tuple[Tree, Any, Info]
"""What an estimate gives back: a gradient, the next state, what to report."""


class Recordable(Protocol):
    """A step that may be recorded: an estimator's, or that of the single loop, which gives the next x."""

    @property
    def capturable(self) -> bool:
        """Whether it runs the same operations at every step, and never waits for the host."""
        ...

    @property
    def compilable(self) -> bool:
        """Whether it has inner steps to compile; explicit methods differentiate through theirs."""
        ...

    @property
    def memory(self) -> list[Tensor]:
        """What a step changes in place; it may also return these tensors."""
        ...

    def numbers(self, k: int) -> dict[str, float]:
        """Its schedules at step k."""
        ...

    def fed(self, numbers: dict[str, Tensor]) -> Recordable:
        """The same step with scalar tensors in the place of these numbers."""
        ...

    def estimate(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> Found:
        """The step."""
        ...


class Compiled(Functional):
    """torch.func, with the inner steps of one run compiled.

    The compiler keeps its graphs with the code of a function, and after some eight of them it gives up on that code.
    So each run has copies of its own: what other runs of the process compiled does not count.
    """

    retains = False  # a compiled context gives its buffers away

    def __init__(self) -> None:
        self.codes: dict[CodeType, CodeType] = {}

    def inner(self, step: Any) -> Callable[[Any], Any]:
        """The step, compiled as one graph."""
        code = self.codes.setdefault(step.__code__, step.__code__.replace())
        own = FunctionType(code, step.__globals__, step.__name__, step.__defaults__, step.__closure__)
        return torch.compile(own, fullgraph=True, dynamic=False)


def compiled(problem: Problem) -> Problem:
    """The problem whose inner steps and context are compiled."""
    context = None if problem.context is None else torch.compile(problem.context, dynamic=False)
    found = replace(problem, context=context).differentiated_by(Compiled())
    # Looked up there for the first time, it would take a lock, which compilers can't follow.
    found.__dict__["_takes_data"] = problem._takes_data
    return found


def scalars(method: Recordable, k: int, like: Tensor) -> dict[str, Tensor]:
    """The schedules of a method at step k, as scalar tensors; filled on the device, without a wait."""
    return {
        name: torch.full((), number, dtype=like.dtype, device=like.device) for name, number in method.numbers(k).items()
    }


def under_way(t: Tensor) -> Callable[[], list[float]]:
    """A vector on its way to the host, and the wait for it: what is queued on the device after this does not delay it.

    Example:
        >>> import torch
        >>> from bvfim.core.accelerate import under_way
        >>> numbers = under_way(torch.ones(2))
        >>> numbers()
        [1.0, 1.0]
    """
    if not t.is_cuda:
        return t.tolist
    here = torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True)
    there = torch.cuda.Event()
    there.record(torch.cuda.current_stream(t.device))

    def numbers() -> list[float]:
        there.synchronize()
        found: list[float] = here.tolist()
        return found

    return numbers


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

    method: Recordable

    def __call__(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> Found:
        """One estimate."""
        first = tree.leaves(x)[0]
        method = self.method
        if first.is_cuda:
            method = method.fed(scalars(method, k, first))
        return method.estimate(problem, x, state, k, data)


def recorded(action: Callable[[], Any], memory: Sequence[Tensor] = ()) -> tuple[Any, Any]:
    """A CUDA graph of the action, and what it returned: tensors that every replay fills anew.

    The action is run twice before; ``memory``, which it changes in place, is put back.
    """
    before = [t.detach().clone() for t in memory]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries and compilers set themselves up outside of the recording
        action()
        action()
    torch.cuda.current_stream().wait_stream(side)
    for t, value in zip(memory, before, strict=True):
        t.detach().copy_(value)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = action()
    return graph, found


class Recording:
    """One step on inputs of given shapes, as a CUDA graph.

    Inputs that are the method's own memory are used where they are; all others are copied into the recording's own.
    """

    def __init__(self, method: Recordable, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> None:
        self.memory = {id(t) for t in method.memory}
        inputs = tree.map(lambda t: t.clone() if isinstance(t, Tensor) and self._copied(t) else t, (x, state, data))
        self.inputs, self.given = tree.leaves(inputs), list[Any]()
        first, numbers = tree.leaves(x)[0], method.numbers(k)
        self.numbers = torch.tensor([*numbers.values()], dtype=first.dtype, device=first.device)
        fixed = method.fed(dict(zip(numbers, self.numbers.unbind(), strict=True)))

        x, state, data = inputs

        def step() -> Found:
            return fixed.estimate(problem, x, state, k, data)

        self.graph, self.found = recorded(step, method.memory)

    def _copied(self, t: Tensor) -> bool:
        return id(t) not in self.memory

    def replay(self, x: Tree, state: Any, data: Any, numbers: dict[str, float]) -> Found:
        """The step on these inputs. The next replay overwrites the gradient, and what is the method's own memory."""
        given, drawn = tree.leaves((x, state)), tree.leaves(data)
        # What is given again is there already; a batch may be filled anew in place.
        before = [*(self.given or [None] * len(given)), *([None] * len(drawn))]
        self.given = given
        triples = zip(self.inputs, [*given, *drawn], before, strict=True)
        tensors = [(own, new, last) for own, new, last in triples if isinstance(own, Tensor)]
        changed = [(own, new) for own, new, last in tensors if new is not own and new is not last]
        torch._foreach_copy_([own for own, _ in changed], [new for _, new in changed])
        self.numbers.copy_(torch.tensor([*numbers.values()], dtype=self.numbers.dtype), non_blocking=True)
        self.graph.replay()
        gradient, after, info = self.found
        return gradient, tree.map(lambda t: t.detach().clone() if self._copied(t) else t, after), info


@dataclass
class Accelerated:
    """A step that is recorded, compiled, or both; if either fails, it is skipped with a warning that says why."""

    method: Recordable
    compile: bool
    record: bool
    recordings: dict[Any, Recording] = field(default_factory=dict)
    problem: Problem | None = None
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
        problem.evaluations.add(**self.each.as_dict())
        return found

    def _step(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> Found:
        if self.problem is None:
            self.problem = compiled(problem) if self.compile else problem.counted_anew()
        if not self.record:
            numbers = scalars(self.method, k, tree.leaves(x)[0])
            return self.method.fed(numbers).estimate(self.problem, x, state, k, data)
        shape = _signature(data)
        if shape not in self.recordings:
            self.recordings[shape] = Recording(self.method, self.problem, x, state, k, data)
        return self.recordings[shape].replay(x, state, data, self.method.numbers(k))

    def _give_up(self, error: Exception) -> None:
        self.recordings.clear()
        self.problem = None
        what = "compiled" if self.compile else "recorded as a CUDA graph"
        then = "is recorded uncompiled" if self.compile and self.record else "runs without acceleration"
        if not (self.compile and self.record):
            self.plain = Plain(self.method)
        self.compile = False
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        warn(f"the step could not be {what} and {then}: {reason}")


def _signature(data: Any) -> Any:
    """What must be equal for a recording to serve other data: shapes and dtypes, and anything that is not a tensor."""
    return tuple((t.shape, t.dtype) if isinstance(t, Tensor) else t for t in tree.leaves(data))


def require_way(accelerate: str) -> None:
    """Reject an unknown way to accelerate."""
    if accelerate not in WAYS:
        raise MethodError(f"accelerate must be one of {', '.join(WAYS)}, not {accelerate!r}")


Estimate: TypeAlias = Plain | Accelerated
"""The function that computes the estimates of a run."""


def estimate_of(method: Recordable, accelerate: str, problem: Problem, x: Tree, y: Tree, steps: int) -> Estimate:
    """The function that computes the estimates of a run.

    Args:
        method: the method.
        accelerate: one of :data:`WAYS`.
        problem: the problem.
        x, y: the initial point.
        steps: the number of upper steps requested.
    """
    require_way(accelerate)
    cuda = tree.leaves(x)[0].is_cuda
    compilable = method.compilable or problem.context is not None
    why = _unfit(method, cuda, accelerate, compilable, problem.world.size)
    if accelerate == "auto":
        fits = why is None and cuda and steps >= WORTH_RECORDING and tree.size(y) <= LAUNCH_BOUND
        return Accelerated(method, compile=compilable and steps >= LONG, record=True) if fits else Plain(method)
    if accelerate == "none":
        return Plain(method)
    if why is not None:
        warn(f"accelerate={accelerate!r}: {why}; the step runs without acceleration")
        return Plain(method)
    return Accelerated(method, compile=compilable and accelerate == "compile", record=cuda)


def _unfit(method: Recordable, cuda: bool, accelerate: str, compilable: bool, processes: int) -> str | None:
    if processes > 1:
        return "several processes take the step together"
    if not method.capturable:
        return f"{type(method).__name__} is not known to run the same operations at every step"
    if not cuda and (accelerate == "cudagraph" or not compilable):
        return "x is not on a CUDA device"
    return None
