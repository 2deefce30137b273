"""The base image that is asked for by its digest is that one or none."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "python@sha256:" + "0" * 64


def put_program(folder: Path, name: str, program: str) -> None:
    """Put a program into a folder that writes down how it is called."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{folder}/calls"\n{program}\n')
    path.chmod(0o755)


def provide(tmp_path: Path, image: str, *, docker: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run deploy/base-image with a docker that does this; return what it said, and what it called."""
    put_program(tmp_path, "docker", docker)
    put_program(tmp_path, "debootstrap", "exit 9")
    done = subprocess.run(
        ["bash", ROOT / "deploy" / "base-image"],
        env=os.environ
        | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BASE_IMAGE": image, "DEBIAN_MIRROR": "file:///none"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, (tmp_path / "calls").read_text().splitlines()


def test_no_other_image_stands_for_a_digest(tmp_path: Path) -> None:
    """If it cannot be pulled, nothing is built in its place."""
    done, calls = provide(tmp_path, DIGEST, docker="exit 1")
    assert done.returncode == 1
    assert "no other image has this digest" in done.stderr
    assert calls == [f"docker image inspect {DIGEST}", f"docker pull --quiet {DIGEST}"]


def test_a_digest_is_pulled(tmp_path: Path) -> None:
    """Unless it is there."""
    for docker, calls in (('[ "$1" = pull ]', 2), ("exit 0", 1)):
        done, made = provide(tmp_path, DIGEST, docker=docker)
        assert (done.returncode, len(made)) == (0, calls)
        (tmp_path / "calls").unlink()
