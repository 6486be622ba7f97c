"""Functions that only compiled code calls: typed and lowered, then left to be optimised once, with their caller.

Numba makes machine code of every function by itself, and with each caller optimises all that it calls once more: from
:func:`sim.core.advance.advance` down to a block's links that was ten times the same work, and most of compilation.
Here a function stops at LLVM's form. What is entered from Python links all it calls, optimises it as a whole and alone
becomes machine code. Numba's passes are used as they are, but for the end of the last one.

What is called in every step has to be inlined, or handing over the arrays takes longer than the work: a run would take
twice as long. What runs rarely must not be, or each way that leads to it holds a copy: they took most of a minute.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _LowerForCallers(NativeLowering):
    """Numba's lowering without the machine code."""

    _name = "lower_for_callers"

    def run_pass(self, state: Any) -> bool:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library._optimize_final_module = lambda: None  # noqa: SLF001
        library._finalize_final_module = lambda: _close(library)  # noqa: SLF001
        state.library = library
        state.flags.no_compile = True
        super().run_pass(state)  # type: ignore[no-untyped-call]
        lowered = state["cr"]
        if not state.flags.forceinline:
            function = library.get_function(lowered.fndesc.llvm_func_name)
            function.add_function_attribute("noinline")
            function.add_function_attribute("cold")
        name = _dynfunc.make_function(lowered.fndesc.lookup_module(), "internal", "", 0, lowered.env, (library,))
        state.targetctx.insert_user_function(name, lowered.fndesc, [library])
        state["cr"] = lowered._replace(cfunc=name)
        return True


def _close(library: Any) -> None:
    """What Numba does with a finished library, but for handing it to the machine-code generator."""
    library._finalize_dynamic_globals()  # noqa: SLF001
    library._finalized = True  # noqa: SLF001


class CallersOnly(CompilerBase):
    """The pipeline of ``sim.core._jit.inlined``."""

    def define_pipelines(self) -> list[Any]:
        """Numba's nopython passes with the last one replaced."""
        passes: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes.passes = [(_LowerForCallers if one is NativeLowering else one, why) for one, why in passes.passes]
        passes.finalize()
        return [passes]


class Callee(CPUDispatcher):
    """A function that is compiled for its callers alone; called from Python it is the plain function.

    Numba would compile it once more for every constant it is called with.
    """

    def __init__(self, function: Any, plain: Any, options: dict[str, Any]) -> None:
        """``plain``: what a call from Python calls; ``options``: Numba's, with ``forceinline``."""
        options = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        super().__init__(function, targetoptions=options, pipeline_class=CallersOnly)
        self.plain = plain

    def __call__(self, *arguments: Any) -> Any:
        """The plain function's answer."""
        return self.plain(*arguments)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The signature for arguments of these types, be they constants or not."""
        variables = [types.unliteral(argument) for argument in args]  # type: ignore[no-untyped-call]
        return super().get_call_template(variables, kws)
