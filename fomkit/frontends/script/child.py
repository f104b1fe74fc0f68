"""Run a user's training program in the child process until one of its steps is captured, in any framework.

`run_script` serves one request. A framework supplies a `FrameworkCapture`: a `Watch` that records the program's
steps, and a function that makes the draft. `RoundWatch` tells it when a round of the program's own loops ends;
a `Round` runs again for other values.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import CodeType, FrameType, ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar

from fomkit.core.errors import FomkitError
from fomkit.core.model import OF_ONE
from fomkit.files.child_process import ResultFile, error_content, read_request
from fomkit.frontends.drafting import replaced, watched
from fomkit.frontends.model_file import explain_exception, nodes_of
from fomkit.frontends.script.loops import loops_of_program, loops_to_step, trains
from fomkit.frontends.script.rounds import Head, Loop, evaluated
from fomkit.frontends.step import Draft

WANTED_ROUND = 3
"""The step that is captured; the first sets optimizers up, the second may still fill caches."""
_TIDY_S = 10.0
"""Time [s] that a stopped program has for its ``finally`` blocks."""

T = TypeVar("T")


class StopProgram(BaseException):
    """Ends the user's program; an ``except Exception`` in it does not catch this."""


class Watch(Generic[T]):
    """Records a program's training until a step can be captured.

    `on_capture`: called with the final capture; it may raise what ends the program.

    `rounds`: steps seen; `wanted`: how many to see.
    `captured`: the best step so far; `is_over`: whether it is the final one.
    `on_limits`: called with `limits` once the program has no values.
    """

    def __init__(self, on_capture: Callable[..., None]) -> None:
        self.rounds, self.wanted = 0, WANTED_ROUND
        self.captured: T | None = None
        self.is_over = False
        self.on_limits: Callable[[str], object] = lambda _: None
        self._on_capture = on_capture

    @property
    def seen(self) -> str:
        """What a program without steps did instead, as the end of a sentence; "" for nothing."""
        return ""

    @property
    def limits(self) -> str:
        """What a program cannot do here that has no values to compute with, a sentence; "" for nothing."""
        return ""

    def watch(self) -> AbstractContextManager[None]:
        """Record the code that runs inside the block."""
        raise NotImplementedError


@dataclass(frozen=True)
class FrameworkCapture(Generic[T]):
    """How programs of one framework are captured.

    `watch`: makes the watch from the function to call on capture.
    `draft`: makes the draft; its last argument says why the program ended early, "" if it did not.
    `trains`: the expected ways of training, for messages.
    `around`: makes the context in which a program at that path runs.
    """

    watch: Callable[[Callable[..., None]], Watch[T]]
    draft: Callable[[T, dict[str, Any], str], Draft]
    trains: str
    around: Callable[[Path], AbstractContextManager[None]] = lambda _: contextlib.nullcontext()


class Notebook:
    """Stands for IPython in a notebook that was saved as a program: commands do nothing, timed cells run."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Callable[..., list[str]]:
        """Return a function for commands of this kind, such as ``run_cell_magic`` and ``system``."""

        def run(command: str = "", *texts: str) -> list[str]:
            if name.startswith("run_") and command in ("time", "timeit", "capture", "prun") and texts:
                exec(texts[-1], self._names)  # noqa: S102 - the program's own code
            return []

        return run


def run_program(path: Path, arguments: Sequence[str]) -> None:
    """Run a file as ``python path arguments`` does."""
    spec = importlib.util.spec_from_file_location("__main__", path)
    if spec is None or spec.loader is None:
        raise FomkitError(str(path), "is not a Python file. Its name must end in .py.")
    program = importlib.util.module_from_spec(spec)
    # As for any program; if it had a spec, processes that it spawns would not find it.
    program.__spec__ = None
    if "get_ipython()." in path.read_text(encoding="utf-8", errors="replace"):
        vars(program)["get_ipython"] = lambda: Notebook(vars(program))
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    sys.modules["__main__"] = program
    sys.meta_path.append(AloneFinder())
    spec.loader.exec_module(program)


def _failure(error: FomkitError, *, quotes: bool = False) -> Mapping[str, object]:
    """Return the answer of a failed child; ``quotes``: whether to quote the program's output."""
    return {**error_content(error), "quotes": quotes}


def _stop_with(answer: ResultFile, framework: FrameworkCapture[T], request: dict[str, Any]) -> Callable[..., None]:
    """Return the function called on capture: it leaves the draft and ends the program unless more is to follow."""

    def on_capture(capture: T, is_all: bool = True) -> None:
        try:
            answer.write({"draft": asdict(framework.draft(capture, request, ""))})
        except Exception as error:  # otherwise the user's code might swallow the error and train on
            answer.write(_failure(explain_exception(error, request["where"], Path(request["path"]))))
            os._exit(0)
        if not is_all:
            return
        late = threading.Timer(_TIDY_S, os._exit, (0,))
        late.daemon = True
        late.start()
        raise StopProgram

    return on_capture


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Let a program that asks for the size of its terminal find the usual one: there is none here."""

    def opened(run: Any, command: str, *args: Any, **kwargs: Any) -> Any:
        return io.StringIO("24 80\n") if command.startswith("stty size") else run(command, *args, **kwargs)

    size = os.terminal_size((80, 24))
    with replaced(os, get_terminal_size=lambda *_: size), watched(os, popen=opened):
        yield


def _first(given: Any = None, *_args: Any, **named: Any) -> Any:
    given = next(iter(named.values()), None) if given is None else given
    if hasattr(given, "param_groups"):  # what Horovod adds to PyTorch's optimizers
        given.synchronize, given.skip_synchronize = lambda: None, contextlib.nullcontext
    return given


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


_OF_ONE_PROCESS: Mapping[str, Any] = {
    **dict.fromkeys(("size", "local_size", "cross_size"), lambda: 1),
    **dict.fromkeys(("rank", "local_rank", "cross_rank"), lambda: 0),
    **dict.fromkeys(("init", "shutdown", "join", "barrier", "broadcast_parameters", "broadcast_optimizer_state",
                     "broadcast_variables", "broadcast_global_variables"), _nothing),
    **dict.fromkeys(("DistributedOptimizer", "DistributedGradientTape", "allreduce", "allgather", "broadcast",
                     "broadcast_object", "allreduce_", "broadcast_", "grouped_allreduce"), _first),
    **dict.fromkeys(("Average", "Sum", "Adasum")), "Compression": SimpleNamespace(none=None, fp16=None),
}  # fmt: skip
"""What Horovod's functions are in a job of one process."""


class Alone(ModuleType):
    """Stands for Horovod, whose build needs compilers and MPI, where it is not installed: a job of one process."""

    def __getattr__(self, name: str) -> Any:
        """Return a function for a job of one process; of ``callbacks``, a class whose objects do nothing."""
        if self.__name__.endswith(".callbacks") and name.endswith("Callback"):
            return type(name, (sys.modules["keras"].callbacks.Callback,), {"__init__": _nothing})
        if name.endswith(("_built", "_enabled")):
            return lambda *_: False
        if name not in _OF_ONE_PROCESS:
            raise AttributeError(f"Horovod's {name} has no stand-in here", name=name, obj=self)
        return _OF_ONE_PROCESS[name]


class AloneFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds Horovod's modules where it is not installed, after all others."""

    def find_spec(self, name: str, _path: Any, _target: ModuleType | None = None) -> Any:
        """Find a module of Horovod."""
        is_its = name.partition(".")[0] == "horovod"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_its else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Make the stand-in."""
        return Alone(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Import the callbacks of Horovod for Keras with it."""
        if module.__name__.endswith("keras"):
            vars(module)["callbacks"] = importlib.import_module(f"{module.__name__}.callbacks")


def horovod_notes() -> list[str]:
    """Return a note on how a program's processes share the training, by Horovod's stand-in or as they begin."""
    how = "Horovod" if isinstance(sys.modules.get("horovod"), Alone) else "multiprocessing" if _BEGUN else ""
    what = f"share copies of the model ({how}): to estimate many devices, use --nodes N with the batch of them all"
    return [f"{OF_ONE} of processes that {what}"] * bool(how)


_BEGUN: list[str] = []
"""Names of the processes that began here."""


@contextlib.contextmanager
def training_here() -> Iterator[None]:
    """Run a process of the program that trains here, where its steps are seen; others start as usual."""

    def started(start: Callable[[Any], None], process: Any) -> None:
        if not any(trains(one) for one in (process._target, *process._args)):
            return start(process)
        _BEGUN.append(process.name)
        process.join = _nothing
        return process.run()  # type: ignore[no-any-return]

    with watched(BaseProcess, start=started):
        yield


def _hint(error: BaseException) -> str:
    """Return what to do where a program meets something that is missing here; "" for other errors."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(word in str(error).lower() for word in ("cuda", "nvidia", "hip", "accelerator", "gpu")):
        return " It is run on the CPU: let it use the CPU where there is no accelerator."
    if isinstance(error, EOFError) and not frames[-1].f_code.co_filename.endswith("pickle.py"):
        return " Nobody answers its questions here: let it take the answer from an argument, after '--'."
    if isinstance(error, KeyError) and frames[-1].f_code is os.environ.__getitem__.__code__:
        name = error.args[0]
        return f" Set this variable and pass it on: {name}=… FOMKIT_PASS_ENV={name} fomkit …"
    return ""


def _no_step_error(
    error: BaseException | None, watch: Watch[Any], framework: FrameworkCapture[Any], request: dict[str, Any]
) -> FomkitError:
    """Return the error for a program from which no step could be captured."""
    where, path = request["where"], Path(request["path"])
    when = f"before its {'second' if watch.rounds else 'first'} training step"
    if error is not None and not isinstance(error, SystemExit):
        explained = explain_exception(error, where, path, f", {when}")
        if isinstance(error, SyntaxError | FomkitError):
            return explained
        return FomkitError(explained.where, f"{explained.what.rstrip('.')}.{_hint(error)}{watch.limits}")
    if watch.rounds:
        return FomkitError(
            where,
            "took one training step and ended. A later step was expected, because the first one also "
            "initialises. Let it train three steps: more samples or epochs, or a smaller batch.",
        )
    expected = (
        f"A program that trains by {framework.trains} was expected; its own arguments end the "
        "command, after '--', for example: -- --epochs 1. A file that only holds a model defines `inputs`"
    )
    if error is not None:
        at = explain_exception(error, where, path).where
        # Argparse says what it lacks before it ends the program.
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        ending = argparse.ArgumentParser.error.__code__
        if asked := next((str(one.f_locals.get("message")) for one in frames if one.f_code is ending), ""):
            what = f"{asked[0].lower()}{asked[1:]}. Give its own arguments at the end of the command, after '--'"
            return FomkitError(at, f"ends {when}: {what}, for example: -- --epochs 1.")
        return FomkitError(at, f"ends by sys.exit({error.code!r}) {when}. {expected}")
    return FomkitError(where, f"ran without a step of an optimizer in this process{watch.seen}. {expected}")


def _why_fewer(error: BaseException | None, watch: Watch[Any], request: dict[str, Any]) -> str:
    """Return why fewer steps ran than wanted; "" if enough ran."""
    if watch.rounds >= watch.wanted and error is None:
        return ""
    ended = "ended" if error is None else explain_exception(error, request["where"], Path(request["path"])).what
    if isinstance(error, SystemExit):
        ended = f"ended by sys.exit({error.code!r})"
    steps = f"{watch.rounds} step{'s' if watch.rounds > 1 else ''}"
    return f"the program {ended} after {steps}; {WANTED_ROUND} or more were wanted"


def _result(request: dict[str, Any], watch: Watch[T], framework: FrameworkCapture[T]) -> Mapping[str, object]:
    """Run the program; return the answer if it was not stopped."""
    error, path = None, Path(request["path"])
    try:
        with _terminal(), framework.around(path), watch.watch():
            run_program(path, request["arguments"])
    except StopProgram:  # a step was captured, or none is expected any more
        error = None
    except BaseException as raised:  # the program may raise anything, even SystemExit; the parent reports it
        error = raised
    if watch.captured is None:
        return _failure(_no_step_error(error, watch, framework, request), quotes=isinstance(error, SystemExit))
    if watch.is_over:
        return {}  # the answer was left when the program was stopped
    try:
        return {"draft": asdict(framework.draft(watch.captured, request, _why_fewer(error, watch, request)))}
    except Exception as raised:  # the user's step may fail where only its shapes are known
        return _failure(explain_exception(raised, request["where"], path))


def run_script(framework: FrameworkCapture[T]) -> None:
    """Run one request from standard input, then end the process at once."""
    request, answer = read_request()
    watch = framework.watch(_stop_with(answer, framework, request))
    watch.on_limits = lambda text: answer.write({"limits": text})  # in case that it exceeds a limit
    result = _result(request, watch, framework)
    if not watch.is_over:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have closed or replaced it
                stream.flush()
        answer.write(result)
    os._exit(0)


class RoundWatch:
    """Calls a function whenever a loop around a line of the program begins a round, or ends.

    Python's tracing of lines shows it, whatever a round does.
    """

    def __init__(self, on_round: Callable[[Head], None]) -> None:
        self._on_round, self._heads = on_round, set[Head]()

    def around(self, frame: FrameType) -> str:
        """Watch the loops around a frame; return the place of the innermost, "" if there is none."""
        loops = loops_to_step(frame)
        for loop in loops:
            self._heads.add(loop.head)
            loop.frame.f_trace = self._seen
        if loops:
            # The interpreter calls a frame's own function only if there is one for all.
            sys.settrace(lambda *_: None)
        return loops[-1].place if loops else ""

    def _seen(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and (head := (frame.f_code, frame.f_lineno)) in self._heads:
            self._on_round(head)
        return self._seen


@dataclass(frozen=True)
class Round:
    """A round of a loop that runs now, as a function that repeats it.

    `head`: function and line of the loop.
    `item`: what the loop's target holds; None for a loop without one.
    `names`: what the round has read so far as a whole, not only in parts, by name.
    """

    head: Head
    item: Any
    names: Mapping[str, Any]
    _code: CodeType
    _known: Mapping[str, Any]

    def again(self, item: Any, names: Mapping[str, Any]) -> None:
        """Run the round for another item and other values of names; the program's own variables stay."""
        exec(self._code, {**self._known, **names, "__item": item})  # noqa: S102 - this is how the program runs


def _held(target: ast.expr, frame: FrameType) -> Any:
    """Return what the target of a loop holds."""
    return tuple(_held(one, frame) for one in target.elts) if hasattr(target, "elts") else evaluated(target, frame)


class _Leaving(ast.NodeTransformer):
    """Replaces a return from the round's function, which is no function here, by leaving the round."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Break(), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node


def _from_last_with(frame: FrameType) -> ast.While | None:
    """Return the statements of a frame's function from its last ``with`` before the line that runs, as a loop."""
    lines = {line for *_, line in frame.f_code.co_lines() if line}
    bodies = (getattr(node, "body", ()) for node in nodes_of(frame.f_code.co_filename))
    for body in (one for one in bodies if isinstance(one, list) and {part.lineno for part in one} & lines):
        begins = [at for at, one in enumerate(body) if isinstance(one, ast.With) and one.lineno <= frame.f_lineno]
        if begins and (body[-1].end_lineno or 0) >= frame.f_lineno:
            return ast.While(ast.Constant(True), body[begins[-1] :], [], lineno=body[begins[-1]].lineno)
    return None


def round_around(frame: FrameType, head: Head | None) -> Round | None:
    """Return the round around a frame of the loop with this head; None if it cannot be repeated.

    Without a head, as no loop is around the frame, the round is what its function does from its last ``with`` on.
    """
    loops = [loop for loop in loops_of_program(frame) if loop.head == head]
    if head is None and (whole := _from_last_with(frame)):
        loops = [Loop(whole, frame)]
    if not loops:
        return None
    node, own = loops[-1].node, loops[-1].frame
    known = {**own.f_globals, **own.f_locals}
    target = f"{ast.unparse(node.target)} = __item" if isinstance(node, ast.For) else ""
    once = ast.parse(f"{target}\nfor __once in (0,): pass")  # a loop, in which break may stand
    once.body[-1].body = [_Leaving().visit(deepcopy(part)) for part in node.body]  # type: ignore[attr-defined]
    parts = [one for part in node.body for one in ast.walk(part)]
    cut = {ast.unparse(one.value) for one in parts if isinstance(one, ast.Subscript)}
    # What it reads only later, such as gradients, is still that of the round before.
    names = (one for one in parts if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    read = {one.id for one in names if one.lineno <= own.f_lineno} - cut
    try:
        code = compile(once, own.f_code.co_filename, "exec")
    except SyntaxError:  # a generator
        return None
    item = _held(node.target, own) if isinstance(node, ast.For) else None
    return Round(loops[-1].head, item, {name: known[name] for name in read & known.keys()}, code, known)
