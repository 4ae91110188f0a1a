"""Questions that come while others are being answered, answered together: then a search costs much less of Python."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)
Question = TypeVar("Question")
Answer = TypeVar("Answer")
MOST_TOGETHER = 32  # questions that are answered together: the first of them waits until all are


class Batches(Generic[Kind, Question, Answer]):
    """Answers to questions of several kinds: those of one kind are answered together, and kinds beside each other.

    A question that comes alone is answered at once.

    Parameters
    ----------
    answer : callable
        Coroutine function from a kind and its questions to their answers, in the same order; an exception among them is
        raised for its question alone.

    Examples
    --------
    >>> async def answer(kind, questions):
    ...     return [f"{kind} {question} of {len(questions)}" for question in questions]
    >>> async def ask():
    ...     batches = Batches(answer)
    ...     return await asyncio.gather(*(batches.ask("item", name) for name in "abc"))
    >>> asyncio.run(ask())
    ['item a of 3', 'item b of 3', 'item c of 3']
    """

    def __init__(self, answer: Callable[[Kind, Sequence[Question]], Awaitable[Sequence[Answer | Exception]]]) -> None:
        self._answer = answer
        self._waiting: dict[Kind, list[tuple[Question, asyncio.Future[Answer]]]] = {}
        self._running: set[asyncio.Task[None]] = set()  # else nothing would hold the tasks

    async def ask(self, kind: Kind, question: Question) -> Answer:
        """Wait for the answer of a question."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(kind)
        if waiting is not None:
            waiting.append((question, future))
            return await future
        self._waiting[kind] = [(question, future)]
        task = asyncio.create_task(self._answer_all(kind))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await future

    async def _answer_all(self, kind: Kind) -> None:
        """Answer the questions of a kind until none waits."""
        try:
            while waiting := self._waiting[kind]:
                taken = waiting[:MOST_TOGETHER]
                del waiting[:MOST_TOGETHER]
                answers = await self._answers(kind, [question for question, _ in taken])
                for (_, future), answer in zip(taken, answers, strict=True):
                    _settle(future, answer)
        finally:
            del self._waiting[kind]

    async def _answers(self, kind: Kind, questions: Sequence[Question]) -> Sequence[Answer | Exception]:
        try:
            return await self._answer(kind, questions)
        except Exception as error:
            return [error] * len(questions)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():  # its request was canceled
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
