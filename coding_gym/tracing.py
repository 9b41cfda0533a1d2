"""OpenTelemetry spans of resets, steps and gradings, once ``enable`` has been called.

The spans ``coding_gym.reset``, ``coding_gym.step`` and ``coding_gym.grade`` are children of the caller's current span, also in
the threads of vector environments and graders; `docs/monitoring.md` lists their attributes. After an infrastructure error or an
exception, a span has the status ``ERROR`` and the attribute ``error.type``; a failure of the code that was run is an
observation.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from coding_gym._optional import import_extra
from coding_gym._version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["disable", "enable"]

_INFRASTRUCTURE = "infrastructure"
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Library:
    """OpenTelemetry's API and a tracer, while spans are recorded.

    Args:
        provider: Makes the tracer; None for the global one.
    """

    def __init__(self, provider: TracerProvider | None) -> None:
        self._api = import_extra("opentelemetry.trace", extra="otel")
        self._tracer = self._api.get_tracer("coding_gym", __version__, tracer_provider=provider)

    def start(self, name: str, attributes: Mapping[str, Any]) -> Any:
        return self._tracer.start_span(name, kind=self._api.SpanKind.CLIENT, attributes=attributes)

    def mark_failed(self, span: Any, error_type: str, description: str) -> None:
        span.set_attribute("error.type", error_type)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, description))


_library: _Library | None = None
"""None while no spans are recorded, so that nothing is imported, and an operation costs a comparison more."""


def enable(tracer_provider: TracerProvider | None = None) -> None:
    """Record spans from now on, in all environments and graders of this process.

    Args:
        tracer_provider: Where they go; OpenTelemetry's global provider if None.

    Raises:
        ConfigurationError: If OpenTelemetry is not installed.

    Example:
        >>> from coding_gym import tracing
        >>> tracing.enable()  # doctest: +SKIP
    """
    global _library
    _library = _Library(tracer_provider)


def disable() -> None:
    """Record no more spans; those that have begun are still ended."""
    global _library
    _library = None


def in_current_context(function: _Function) -> _Function:
    """Return a function that another thread calls as if in the caller's context, so that its spans have the caller's parent."""
    if _library is None:
        return function
    called: Any = partial(contextvars.copy_context().run, function)
    return called  # type: ignore[no-any-return]


class OperationTrace:
    """Span of the operation in progress, of which there is at most one; nothing while no spans are recorded."""

    def __init__(self) -> None:
        self._span: Any = None

    def begin(self, operation: str, attributes: Callable[[], Mapping[str, Any]]) -> None:
        """Begin the span of an operation, and end that of an operation that was abandoned.

        Args:
            operation: ``reset``, ``step`` or ``grade``.
            attributes: Returns the attributes.
        """
        if self._span is not None:
            self.fail(None)
        if _library is not None:
            self._span = _library.start(f"coding_gym.{operation}", attributes())

    @property
    def is_recording(self) -> bool:
        """Whether there is a span."""
        return self._span is not None

    def end(self, outcome: str, attributes: Mapping[str, Any]) -> None:
        """End the span, if there is one.

        Args:
            outcome: Outcome of the operation.
            attributes: Further attributes.
        """
        span, self._span = self._span, None
        if span is None:
            return
        span.set_attributes({"coding_gym.outcome": outcome, **attributes})
        if outcome == _INFRASTRUCTURE and _library is not None:
            _library.mark_failed(span, outcome, "the sandbox failed")
        span.end()

    def fail(self, error: BaseException | None) -> None:
        """End the span, if there is one, because of an exception, or None if the operation was abandoned."""
        span, self._span = self._span, None
        if span is None:
            return
        if error is not None:
            span.record_exception(error)
        if _library is not None:
            kind = "abandoned" if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
            _library.mark_failed(span, kind, str(error or "the operation was abandoned"))
        span.end()
