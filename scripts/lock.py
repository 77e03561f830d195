"""Writes requirements.lock (runtime) and requirements-dev.lock: versions and hashes, no hosts."""

import subprocess
import sys

BASE = [
    *(sys.executable, "-m", "piptools", "compile", "--quiet", "--generate-hashes"),
    *("--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-header"),
    *("--strip-extras", "--allow-unsafe", "--no-annotate", "pyproject.toml"),
]
subprocess.run([*BASE, "--output-file", "requirements.lock"], check=True)
subprocess.run([*BASE, "--extra", "dev", "--output-file", "requirements-dev.lock"], check=True)
