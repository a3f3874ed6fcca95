#!/usr/bin/env python3
"""Writes FOLDER/digests.toml: SHA-256 and size of each program for the zkVM.

The back end's commitment to a program (`program_digest`) is kept where the program did not change;
where it did, the line says so until `make prover` has filled it.
"""

import hashlib
import pathlib
import sys
import tomllib

HEAD = """\
# The programs that `confide-prover` proves. `sha256` and `bytes` are of the ELF next to this file
# (`make guests`); `program_digest` is the back end's commitment to it, which every proof names. It is
# filled by `confide-prover digests`.
"""


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    path = folder / "digests.toml"
    known = tomllib.loads(path.read_text()) if path.exists() else {}
    text = HEAD
    for elf in sorted(folder.glob("*.elf")):
        content = elf.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        old = known.get(elf.stem, {})
        program = old.get("program_digest", "") if old.get("sha256") == sha256 else ""
        text += f'\n[{elf.stem}]\nsha256 = "{sha256}"\nbytes = {len(content)}\n'
        text += f'program_digest = "{program}"\n'
    path.write_text(text)
    print(f"guests: wrote {path}")


main()
