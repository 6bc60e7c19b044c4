"""What a wrong name may mean: known names that are similar to it.

A number in a name is what tells models and devices apart, so a name with another number is no misspelling: `gpt5` is not
`gpt-7.5b`, and `llama-3-7b` is neither `llama-3-70b` nor `llama-3-8b`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

SIMILAR = 0.6
"""Least share of equal letters (difflib's ratio, whose default this is) of a misspelling. More: fewer suggestions."""
TIED = 0.02
"""Names whose shares of equal letters differ by less are equally likely. Guess."""
MOST = 4
"""Largest number of names that are suggested. Guess."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` if known names are meant by the word, else names of the same family, else all known names."""
    names = sorted(known)
    near = _meant(word, names)
    if near:
        return f"; did you mean {_alternatives(near)}?"
    family = [name for name in names if _family(name) == _family(word)] if _family(word) else []
    if family:
        return f"; similar names: {', '.join(family)}"
    return f"; known: {', '.join(names)}" if names else ""


def _meant(word: str, names: Sequence[str]) -> list[str]:
    """Names that differ in case and punctuation only, else those that begin with the word and continue none of its numbers,
    else those that it misspells.
    """
    plain = _plain(word)
    begun = re.compile(re.escape(plain) + (r"(?!\d)" if plain[-1:].isdigit() else ""))
    for fits in (re.compile(re.escape(plain) + "$"), begun):
        found = [name for name in names if plain and fits.match(_plain(name))]
        if 0 < len(found) <= MOST:
            return found
        names = found or names  # of too many, the most similar ones
    likeness = {name: SequenceMatcher(None, word.lower(), name.lower()).ratio() for name in names if _same_numbers(word, name)}
    best = max(likeness.values(), default=0.0)
    found = [name for name, share in likeness.items() if share > best - TIED]
    return found if best >= SIMILAR and len(found) <= MOST else []


def _same_numbers(word: str, name: str) -> bool:
    """Whether one of the two has all numbers of the other."""
    one, other = (Counter(re.findall(r"\d+(?:\.\d+)?", text)) for text in (word, name))
    return one <= other or other <= one


def _plain(name: str) -> str:
    """A name in lower case, without punctuation."""
    return re.sub(r"[\W_]", "", name.lower())


def _family(name: str) -> str:
    """The letters that a name begins with."""
    return re.match(r"[a-z]*", name.lower())[0]  # type: ignore[index]  # matches every text


def _alternatives(names: Sequence[str]) -> str:
    """Quoted names with commas and `or`."""
    quoted = [repr(name) for name in names]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
