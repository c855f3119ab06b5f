"""The text in a file, whatever it is packed in and however it is encoded."""

import codecs
import gzip
import io
import re
import zipfile
import zlib
from pathlib import Path

from forecaster.bars.files.layouts import listed, short
from forecaster.errors import DataError

Note = tuple[str, str, str]  # kind, detail, action


def unpacked(path: Path, name: str) -> bytes:
    """The bytes of a file, unpacked where it is a .gz or .zip. DataError where that fails."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        elif content[:4] == b"PK\x03\x04" or path.suffix.lower() == ".zip":
            content = _unzipped(content, name)
        elif path.suffix.lower() == ".gz" and content:
            raise DataError(f"{name} is no gzip file: it begins with {content[:8]!r}: fetch it again")
    except PermissionError as reason:
        raise DataError(f"{name} can't be opened: no permission to read it: change its mode") from reason
    # Broken and cut archives, compressions that zipfile lacks (NotImplementedError), passwords (RuntimeError).
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as reason:
        text = short(" ".join(str(reason).split()))
        raise DataError(f"{name} can't be unpacked ({text}): fetch it again") from reason
    if not content.strip():
        raise DataError(f"{name} is empty: fetch it again")
    return content


def _unzipped(content: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [
            member.filename
            for member in archive.infolist()
            if not member.is_dir() and not member.filename.startswith("__MACOSX/")
        ]
        if "[Content_Types].xml" in members:
            raise DataError(f"{name} is a spreadsheet: save it as CSV")
        if len(members) != 1:
            raise DataError(
                f"{name} holds {len(members)} files ({listed(members)}): unpack it and name those with bars"
            )
        return archive.read(members[0])


def decoded(raw: bytes, name: str) -> tuple[bytes, list[Note]]:
    """UTF-8 without a mark, lines ended by \\n; a note where it was no Unicode."""
    notes: list[Note] = []
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            text = raw.decode("utf-16")
        except UnicodeDecodeError as reason:
            raise DataError(f"{name} is cut or broken UTF-16 (byte {reason.start}): save it as UTF-8") from reason
    else:
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as reason:
            text = raw.removeprefix(codecs.BOM_UTF8).decode("cp1252", errors="replace")
            line = raw[: reason.start].count(b"\n") + 1
            notes = [("encoding", f"{name} line {line}: not UTF-8", "read as cp1252")]
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\x1a")
    if not text.strip():
        raise DataError(f"{name} is empty: fetch it again")
    broken = re.search("[\x00-\x08\x0b\x0e-\x1f]", text)
    if broken:
        line = text.count("\n", 0, broken.start()) + 1
        raise DataError(f"{name} is no text: line {line} holds the byte {ord(broken[0])}: save it as CSV in UTF-8")
    return text.encode(), notes
