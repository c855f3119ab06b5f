"""Files of bars, damaged at random."""

import random
from pathlib import Path

CASES = Path(__file__).parent / "cases"
TOKENS = [b"", b"nan", b"-", b'"', b"1,193", b"2023-01-01", b"abc", b"1e999", b"inf", b"\x00", b"\xff", b",", b";"]
TOKENS += [
    b'"\n"',
    b"01/02/2023",
    b"45000",
    b"1735516800000",
    b"<html>",
    b"Date,Open,High,Low,Close,Volume",
    b"9" * 400,
    b"\r",
]
TOKENS += [b"2023-01-01 00:00:00-04:00", "−5".encode(), b"$5", b"\xe2\x80\xa8", b"Ticker", b"12:30", b" ", b"\xc2\xa0"]
SEPARATORS = [b";", b"\t", b"|", b" ", b", ", b'",']
SOURCES = [path.read_bytes() for path in sorted(CASES.glob("[0-9]*.csv"))]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """One byte, token, cell, line, separator or the rest of the file changed, doubled, moved or lost."""
    rows = [line.split(b",") for line in content.split(b"\n")]
    row, other, at = rng.randrange(len(rows)), rng.randrange(len(rows)), rng.randrange(len(content) + 1)
    cell, token = rng.randrange(len(rows[row])), rng.choice(TOKENS)
    match rng.randrange(10):
        case 0:
            return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        case 1:
            return content[:at] + token + content[at:]
        case 2:
            return content[:at]
        case 3:
            return content.replace(b",", rng.choice(SEPARATORS))
        case 4:
            rows = [[token if n == cell else text for n, text in enumerate(cells)] for cells in rows]
        case 5:
            del rows[row]
        case 6:
            rows.insert(row, rows[other])
        case 7:
            rows[row], rows[other] = rows[other], rows[row]
        case 8:
            rows[row] = [*rows[row][:cell], token, *rows[row][cell + 1 :]]
        case _:
            rows[row] = [*rows[row][:cell], *rows[row][cell + 1 :]]
    return b"\n".join(b",".join(cells) for cells in rows)
