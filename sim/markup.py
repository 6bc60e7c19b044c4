"""HTML display of objects in notebooks: a line of text and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape


def table(words: str, rows: Sequence[Mapping[str, object]]) -> str:
    """HTML of a line of text and a table; all rows have the same keys, which are the column heads."""
    head = "".join(f"<th>{escape(key)}</th>" for key in (rows[0] if rows else {}))
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row.values())}</tr>" for row in rows)
    return f"<p>{escape(words)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
