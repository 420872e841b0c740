"""Patched by gevent first, as in a Locust process; certificates of an authority of our own."""

from __future__ import annotations

import subprocess

import locust  # noqa: F401  patches the standard library, as in every Locust process
import pytest


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """ca.pem; server.pem and .key for localhost and 127.0.0.1; client.pem and .key; other.pem of another authority."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for authority in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-subj", f"/CN={authority}")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key",
                "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    return folder
