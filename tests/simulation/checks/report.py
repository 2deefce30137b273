"""How a checker objects. Every other file of this folder checks one kind of promise."""

from collections.abc import Callable
from typing import Any, NoReturn


class Violation(BaseException):
    """A promise was broken. `checker` is the short name of who found it, `facts` what it saw.

    No `Exception`: facts are told from inside the system, whose handlers must not take it for a failure of
    their own.
    """

    def __init__(self, checker: str, sentence: str, facts: dict[str, Any]) -> None:
        self.checker = checker
        self.sentence = sentence
        self.facts = facts
        told = " ".join(f"{name}={fact!r}" for name, fact in facts.items())
        super().__init__(f"{checker}: {sentence} {told}".rstrip())


class Report:
    """Raises violations, and keeps the first: the run of a simulation looks here, whatever became of it."""

    def __init__(self) -> None:
        self.violation: Violation | None = None
        self.on_violation: Callable[[Violation], None] | None = None
        """Told before the violation is raised: the run of a simulation may stop here."""

    def fail(self, checker: str, sentence: str, **facts: Any) -> NoReturn:
        """Raise a Violation."""
        violation = Violation(checker, sentence, facts)
        if self.violation is None:
            self.violation = violation
        if self.on_violation is not None:
            self.on_violation(violation)
        raise violation
