"""Coverage-guided fuzzing of the GGUF reader; not part of the tests.

    pip install atheris
    python tests/fuzz/atheris_gguf.py CORPUS_FOLDER -max_total_time=600

Everything but a `RooflineError` is a finding, and so is an input that takes a second. What is found becomes a test in
``tests/test_import_gguf.py``.
"""

import os
import sys
import tempfile
import time

import atheris

with atheris.instrument_imports(include=["rooflinellm"]):
    from rooflinellm.catalog import encodings
    from rooflinellm.engine.layout import lay_out
    from rooflinellm.errors import RooflineError
    from rooflinellm.importers import gguf_model
    from rooflinellm.operators.model import ModelSpec

FOLDER = tempfile.mkdtemp()
PATH = os.path.join(FOLDER, "x.gguf")
DATA_BYTES = 2**16  # tensors point into a hole behind the header


def test_one(data: bytes) -> None:
    """Read one input as a file."""
    with open(PATH, "wb") as stream:
        stream.write(data)
        stream.truncate(len(data) + DATA_BYTES)
    started = time.perf_counter()
    try:
        model = ModelSpec(gguf_model.read(PATH))
        file = model.entry.file
        assert file is not None
        assert lay_out(model, file.fmt, encodings().encodings).resident_bytes == file.total_bytes
    except RooflineError:
        pass
    if time.perf_counter() - started > 1:
        raise AssertionError("took more than a second")


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one)
    atheris.Fuzz()
