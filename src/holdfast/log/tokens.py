"""How many tokens a message takes: counted, or estimated where that can't be.

A counter is asked about every message that may go into a context, so it has to be quick, and must
not need a network. Providers count in ways of their own, so each count is a good guess; what they
report afterwards makes it a better one (`calibrate`).
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Protocol

from holdfast.errors import BadInput
from holdfast.log.messages import Foreign, Media, Message, Part, ToolCall, ToolResult

PER_MESSAGE = 8
"""The tokens of a message besides its content: its role, and the marks around it."""

PER_PART = 4
"""The tokens of a part besides its text."""

PER_MEDIA = 1600
"""The tokens of an image: about the most that providers count for one of usual size."""

LEAST_RATIO, GREATEST_RATIO = 0.25, 4.0


class Counter(Protocol):
    """Counts the tokens of a message. The name tells one kind of counts from another."""

    @property
    def name(self) -> str:
        """The name of the counter."""

    def count(self, message: Message) -> int:
        """How many tokens a message takes."""


class Estimate:
    """An estimate that needs nothing but the text, and is rather too high than too low.

    >>> from holdfast.log.messages import user
    >>> Estimate().count(user("Where is my order?"))
    19
    """

    name = "estimate"

    def count(self, message: Message) -> int:
        """How many tokens a message takes, at the most."""
        return _counted(message, estimated)


_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_GAPS = re.compile(r" {2,}| (?![A-Za-z ])")
_LONGEST_WORD = 16

_LETTERS_AND_SPACE = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
_BY_FIRST_BYTE = (
    (bytes(set(range(0x80)) - set(_LETTERS_AND_SPACE)), 1),  # digits, marks, lines
    (bytes(range(0xC2, 0xD5)), 1),  # é, λ, ж
    (bytes(range(0xD5, 0xE0)), 2),  # Hebrew, Arabic
    (bytes((0xE0, 0xE1)), 3),  # the scripts of India, Thai, Amharic
    (bytes(range(0xE2, 0xEE)), 2),  # dashes and arrows, Chinese, Japanese, Korean
    (bytes(range(0xEE, 0xF0)), 3),
    (bytes(range(0xF0, 0xF8)), 4),  # emoji
)


def estimated(text: str) -> int:
    """How many tokens a text takes, at the most.

    Every tokenizer in use begins with the bytes of UTF-8 and joins what it has often seen. So:

    - three Latin letters of a word are a token; where capitals and small letters change, a new word
      begins; of letters in a row that are too many for a word, two are a token
    - a digit, a mark, a line's end are one each; a space goes with the word that follows it
    - any other letter is one to three, by how well its script is mostly known; an emoji is four

    English comes out about half too high, code and JSON less so.

    >>> estimated("order"), estimated("1234"), estimated("日本"), estimated("🎈")
    (2, 4, 4, 4)
    """
    # In pieces, so that other threads (an event loop's) get their turn beside a text of megabytes.
    return sum(map(_estimated, _pieces(text)))


def _estimated(text: str) -> int:
    total = sum(map(_of_word, map(len, _WORDS.findall(text))))
    total += sum(1 + len(gap) // 16 for gap in _GAPS.findall(text))
    data = text.encode("utf-8", "surrogatepass")
    for firsts, cost in _BY_FIRST_BYTE:
        total += cost * (len(data) - len(data.translate(None, firsts)))
    return total


def _of_word(letters: int) -> int:
    return -(-letters // (3 if letters <= _LONGEST_WORD else 2))


class Tiktoken:
    """Counts as OpenAI's models do, with the `tiktoken` library.

    Given one of its encodings, or the name of a model or an encoding. Then the data is loaded here:
    from its cache, or else over the network; `BadInput` where that fails.

    >>> import tiktoken
    >>> from holdfast.log.messages import user
    >>> ranks = {bytes([n]): n for n in range(256)}
    >>> a_token_a_byte = tiktoken.Encoding(
    ...     "bytes", pat_str=r"[\\s\\S]+", mergeable_ranks=ranks, special_tokens={}
    ... )
    >>> Tiktoken(a_token_a_byte).count(user("Hi")) - Tiktoken(a_token_a_byte).count(user(""))
    2
    """

    def __init__(self, encoding: Any) -> None:
        if isinstance(encoding, str):
            found = _loaded(encoding)
            if isinstance(found, str):
                raise BadInput(f"Tiktoken({encoding!r}): {found}")
            encoding = found
        if not hasattr(encoding, "encode_ordinary"):
            raise BadInput(f"Tiktoken() takes an encoding or a model's name, not {encoding!r:.60}")
        self._encoding = encoding
        self.name: str = f"tiktoken {encoding.name}"

    def count(self, message: Message) -> int:
        """How many tokens a message takes."""
        return _counted(message, self._tokens)

    def _tokens(self, text: str) -> int:
        # In pieces, because a long text without a space takes it a long time.
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in _pieces(text))


_PIECE = 10_000


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


@cache
def _loaded(name: str) -> Any:
    """An encoding by its name or that of a model; a text that says why not, if there is none."""
    try:
        import tiktoken
    except ImportError:
        return "it needs tiktoken: pip install 'holdfast[tiktoken]'"
    try:
        if name in tiktoken.list_encoding_names():
            return tiktoken.get_encoding(name)
        return tiktoken.encoding_for_model(name)
    except KeyError:
        return "tiktoken knows no such model or encoding; use Estimate()"
    except Exception as error:  # whatever its way to the network raises
        return (
            f"its data could not be loaded ({type(error).__name__}: {error!s:.200}); "
            f"use Estimate(), or put the data where TIKTOKEN_CACHE_DIR says"
        )


def best_counter(model: str = "") -> Counter:
    """`Tiktoken` for a model it knows and whose data can be loaded, else `Estimate`.

    Without a model: of the newest encoding.

    >>> best_counter("a-model-of-somebody-else").name
    'estimate'
    """
    try:
        return Tiktoken(model or "o200k_base")
    except BadInput:
        return Estimate()


class Calibrated:
    """A counter whose counts are made to fit what a provider reports.

    >>> from holdfast.log.messages import user
    >>> Calibrated(Estimate(), 0.5).count(user("Where is my order?"))
    10
    """

    def __init__(self, counter: Counter, ratio: float) -> None:
        if not 0 < ratio < math.inf:
            raise BadInput(f"Calibrated(ratio={ratio}): must be more than 0")
        self._counter = counter
        self.ratio = ratio
        self.name: str = f"{counter.name} × {ratio:.2f}"

    def count(self, message: Message) -> int:
        """How many tokens a message takes."""
        return math.ceil(self._counter.count(message) * self.ratio)


def calibrate(pairs: Iterable[tuple[int, int]], last: int = 50) -> float:
    """The factor for counts, from pairs of a counted and a reported number.

    The sums of the last ones are compared, so that large calls weigh more and no single odd one
    decides. Within bounds, whatever is reported; 1.0 where there is nothing to compare.

    >>> calibrate([(100, 80), (300, 240)]), calibrate([]), calibrate([(1, 1000)])
    (0.8, 1.0, 4.0)
    """
    known = deque(((c, r) for c, r in pairs if c > 0 and r > 0), maxlen=last)
    if not known:
        return 1.0
    ratio = sum(reported for _, reported in known) / sum(counted for counted, _ in known)
    return min(max(ratio, LEAST_RATIO), GREATEST_RATIO)


def _counted(message: Message, tokens: Callable[[str], int]) -> int:
    named = tokens(message.name) if message.name else 0
    if isinstance(message.content, str):
        content = PER_PART + tokens(message.content)
    else:
        content = sum(_of_part(part, tokens) for part in message.content)
    return PER_MESSAGE + named + content


def _of_part(part: Part, tokens: Callable[[str], int]) -> int:
    match part:
        case ToolCall():
            return 2 * PER_PART + tokens(part.name) + tokens(part.arguments)
        case ToolResult(content=str(text)):
            return 2 * PER_PART + tokens(text)
        case ToolResult():
            inner = (_of_part(piece, tokens) for piece in part.content)  # type: ignore[arg-type]
            return 2 * PER_PART + sum(inner)
        case Media():
            return PER_PART + _of_media(part, tokens)
        case Foreign():
            return PER_PART + tokens(json.dumps(part.data, ensure_ascii=False, default=str))
        case _:
            return PER_PART + tokens(part.text)


def _of_media(media: Media, tokens: Callable[[str], int]) -> int:
    if not media.media_type.startswith("text/"):
        return PER_MEDIA
    if media.data is not None:
        return tokens(media.data.decode("utf-8", "replace"))
    # Stored, its bytes are elsewhere: two of them are a token at the most, or nearly so.
    return -(-media.artifact.size_bytes // 2) if media.artifact is not None else PER_MEDIA
