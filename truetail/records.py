"""The request record: what happened to one arrival, as a fixed row of 112 bytes.

Rows are appended raw while a run lasts, so that a crash at any instant loses at most the last torn row
(an unclosed Parquet file would lose everything). Times are nanoseconds from the run's epoch; -1 = did not happen.
Stage times are microseconds; NaN = not told by the server.
"""

from __future__ import annotations

import struct

import numpy as np

OK, FAILED, TIMED_OUT, ABANDONED, DROPPED = range(5)
OUTCOMES = ("ok", "failed", "timed_out", "abandoned", "dropped")

FLAG_WARMUP = 1

FIELDS = (
    ("k", "q"),
    ("intended_ns", "q"),
    ("sent_ns", "q"),
    ("first_byte_ns", "q"),
    ("first_token_ns", "q"),
    ("done_ns", "q"),
    ("connect_us", "f"),
    ("queue_us", "f"),
    ("preprocess_us", "f"),
    ("inference_us", "f"),
    ("postprocess_us", "f"),
    ("dependency_us", "f"),
    ("itl_max_us", "f"),
    ("request_bytes", "I"),
    ("response_bytes", "I"),
    ("tokens_in", "I"),
    ("tokens_out", "I"),
    ("status", "H"),
    ("batch", "H"),
    ("name", "H"),
    ("replica", "H"),
    ("error", "H"),
    ("part", "H"),
    ("outcome", "B"),
    ("flags", "B"),
)
PADDING = 6

ROW = struct.Struct("<" + "".join(code for _, code in FIELDS) + f"{PADDING}x")
RECORD = np.dtype(
    {
        "names": [name for name, _ in FIELDS],
        "formats": ["<" + {"q": "i8", "f": "f4", "I": "u4", "H": "u2", "B": "u1"}[code] for _, code in FIELDS],
        "offsets": list(np.cumsum([0, *(struct.calcsize("<" + code) for _, code in FIELDS[:-1])])),
        "itemsize": ROW.size,
    }
)
TABLES = ("name", "replica", "error")
